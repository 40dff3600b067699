//! `upsweep volume send` and `receive`: streams of volumes, through standard output and input.

use std::io::{self, IsTerminal, Read};

use indicatif::ProgressBar;
use upsweep_volume::{Error, Received, Volumes};

use super::{moment, volumes_with};
use crate::args::{VolumeReceiveArgs, VolumeSendArgs};
use crate::context::Context;
use crate::failure::Failure;
use crate::text;

pub(super) fn send(context: &Context, args: &VolumeSendArgs) -> Result<(), Failure> {
    if context.output().is_terminal() {
        let advice = "send the stream to a file or into a pipe to `upsweep volume receive`";
        return Err(Failure::Refused(format!("standard output is a terminal; {advice}")));
    }
    let volume = &args.source.volume;
    let volumes = volumes_with(context, &args.open, volume)?;
    let at = moment(&args.source, args.at.as_ref(), &volumes)?;
    let from = args.from.as_ref().map(|from| from.past(&volumes));
    let mut sending = volumes.send(volume, at, from)?;
    if let Some(token) = args.resume {
        sending = sending.resume(token)?;
    }
    // The receiver has none, which often has the same terminal.
    let bar = context.progress(None, "{spinner} {decimal_bytes:>10}  {decimal_bytes_per_sec}");
    let bar = bar.unwrap_or_else(ProgressBar::hidden);
    let out = bar.wrap_write(context.output().until_interrupted());
    let sent = sending.write_to(out);
    bar.finish_and_clear();
    sent.map(drop).map_err(|error| failure(context, error))
}

pub(super) fn receive(context: &Context, args: &VolumeReceiveArgs) -> Result<(), Failure> {
    let VolumeReceiveArgs { open, volume, resume_token } = args;
    if *resume_token {
        let volumes = volumes_with(context, open, volume)?;
        return context.line(&token(&volumes, volume)?);
    }
    if context.input().is_terminal() {
        let advice = "give it a stream of `upsweep volume send`";
        return Err(Failure::Refused(format!("standard input is a terminal; {advice}")));
    }
    // Then it is recorded how far it has come.
    context.catch_interrupts()?;
    let volumes = context.volumes(open)?;
    let received = volumes.receive(volume, Input(context)).map_err(|error| {
        let is_cut = matches!(error, Error::BadStream { .. } | Error::Transfer { .. });
        match failure(context, error) {
            Failure::Refused(reason) if is_cut && token(&volumes, volume).is_ok() => {
                let advice = "what has arrived is kept, and --resume-token prints where to go on";
                Failure::Refused(format!("{reason}; {advice}"))
            }
            failure => failure,
        }
    })?;
    let Received { snapshot, bytes, is_increment, totals, .. } = received;
    let what = if is_increment { "changes of volume" } else { "volume" };
    let [size, data, zeros] = [bytes, totals.data_bytes, totals.zero_bytes].map(text::size);
    context.line(&format!(
        "received {what} {volume:?}, now of {size}, as snapshot {snapshot:?}: {data} of data, \
         {zeros} of zeros"
    ))
}

/// Where the sender goes on with a volume.
fn token(volumes: &Volumes, volume: &str) -> Result<String, Error> {
    let list = volumes.list();
    let found = list.iter().find(|found| found.name == volume);
    let found = found.ok_or_else(|| Error::NoVolume(volume.to_owned()))?;
    let receiving = found.receiving.as_ref();
    let receiving = receiving.ok_or_else(|| Error::NotReceived(volume.to_owned()))?;
    Ok(receiving.token.to_string())
}

/// Why a stream was not written or read: perhaps an interrupt.
fn failure(context: &Context, error: Error) -> Failure {
    let is_cut = matches!(error, Error::Transfer { .. });
    match context.check() {
        Err(interrupted) if is_cut => interrupted,
        _ => error.into(),
    }
}

/// Standard input.
struct Input<'a>(&'a Context);

impl Read for Input<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(self.0.input(), into)
    }
}
