//! Volumes that are sent from one store to another one, with and without servers.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use upsweep_volume::Acknowledge;

use super::common::{Run, World, refused, text};
use super::exports::{are_there, run, uri};
use super::serve::Server;
use super::volumes::{content, with_volumes, write};

/// Sends from one store and receives in another one, through a pipe.
fn pipe(from: &World, send: &[&str], to: &World, volume: &str) -> (Run, Run) {
    let mut command = from.command("volume send", send);
    let mut sender =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs");
    let stream = sender.stdout.take().expect("a pipe");
    let received = to.command("volume receive", &[volume]).stdin(stream).output();
    let sent: Output = sender.wait_with_output().expect("it ends");
    (sent.into(), received.expect("the program runs").into())
}

/// Both ends must end well; what was received.
fn piped(from: &World, send: &[&str], to: &World) -> String {
    let (sent, received) = pipe(from, send, to, "copy");
    assert_eq!((sent.status, received.status), (Some(0), Some(0)), "{}", received.errors);
    assert_eq!((sent.errors, sent.out), (String::new(), String::new()));
    received.out
}

/// A store with 4 MiB in a disk, and its snapshot `monday`.
fn source() -> World {
    let world = World::new();
    world.ok("volume create", &["disk", "1GiB"]);
    with_volumes(&world, |volumes| {
        let disk = volumes.volume("disk").expect("there");
        disk.write(0, &vec![7; 4 << 20], Acknowledge::Durable).expect("written");
        write(volumes, "disk", "monday");
    });
    world.ok("volume snapshot", &["disk", "monday"]);
    world
}

fn change(world: &World) {
    with_volumes(world, |volumes| {
        write(volumes, "disk", "tuesda");
        let disk = volumes.volume("disk").expect("there");
        disk.zero(1 << 20, 1 << 20, Acknowledge::Durable).expect("zeroed");
    });
    world.ok("volume snapshot", &["disk", "tuesday"]);
}

#[test]
fn a_volume_goes_through_a_pipe_and_then_what_has_changed() {
    let (from, to) = (source(), World::new());
    change(&from);
    let received = piped(&from, &["disk@monday"], &to);
    let expected = "received volume \"copy\", now of 1.0 GiB, as snapshot \"monday\": 4.0 MiB of \
                    data, 0 B of zeros\n";
    assert_eq!(received, expected);
    let received = piped(&from, &["disk", "--at", "@tuesday", "--from", "@monday"], &to);
    let expected = "received changes of volume \"copy\", now of 1.0 GiB, as snapshot \"tuesday\": \
                    4.0 KiB of data, 1.0 MiB of zeros\n";
    assert_eq!(received, expected);
    with_volumes(&to, |volumes| assert_eq!(content(volumes, "copy"), "tuesda"));
    let list = to.ok("volume list", &[]);
    assert!(list.contains("writable   off      monday, tuesday\n"), "{list}");
    // Without a snapshot, and back as a new volume.
    let (sent, received) = pipe(&to, &["copy"], &from, "back");
    assert_eq!((sent.status, received.status), (Some(0), Some(0)), "{}", received.errors);
    with_volumes(&from, |volumes| assert_eq!(content(volumes, "back"), "tuesda"));
    from.ok("verify", &[]);
    to.ok("verify", &[]);
}

#[test]
fn servers_send_and_receive_through_the_streams_of_their_callers() {
    let (from, to) = (source(), World::new());
    change(&from);
    let servers = [Server::start(&from), Server::start(&to)];
    let received = piped(&from, &["disk@monday"], &to);
    assert!(received.contains("as snapshot \"monday\": 4.0 MiB of data"), "{received}");
    let received = piped(&from, &["disk@tuesday", "--from", "@monday"], &to);
    assert!(received.contains("4.0 KiB of data, 1.0 MiB of zeros"), "{received}");
    let (_, received) = pipe(&from, &["disk@tuesday", "--from", "@monday"], &to, "copy");
    refused(&received, "has been changed since snapshot \"monday\"");
    servers.into_iter().for_each(Server::stop);
    with_volumes(&to, |volumes| assert_eq!(content(volumes, "copy"), "tuesda"));
}

/// The first 48 MiB, in which all data is.
fn data(world: &World, volume: &str) -> Vec<u8> {
    let mut found = vec![0; 48 << 20];
    with_volumes(world, |volumes| {
        volumes.volume(volume).expect("there").read(0, &mut found).expect("readable");
    });
    found
}

/// The stream of a command.
fn stream(world: &World, send: &[&str]) -> Vec<u8> {
    let sent = world.command("volume send", send).output().expect("the program runs");
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    sent.stdout
}

/// Receives what is in a file.
fn receive(world: &World, stream: &[u8]) -> Run {
    let path = world.path("stream");
    std::fs::write(&path, stream).expect("written");
    let input = File::open(path).expect("readable");
    let command = world.command("volume receive", &["copy"]).stdin(input).output();
    command.expect("the program runs").into()
}

#[test]
fn an_interrupted_stream_is_resumed_with_its_token() {
    let (from, to) = (source(), World::new());
    let whole = stream(&from, &["disk@monday"]);
    let run = receive(&to, &whole[..3 << 20]);
    let advice = "what has arrived is kept, and --resume-token prints where to go on";
    let at = 3 << 20;
    refused(&run, &format!("the stream is refused at byte {at}: it ends before its end; {advice}"));
    let list = to.ok("volume list", &[]);
    assert!(list.contains("copy         1.0 GiB    512  receiving  off\n"), "{list}");
    let json: serde_json::Value =
        serde_json::from_str(&to.ok("volume list", &["--json"])).expect("JSON");
    assert_eq!(json["receiving"]["snapshot"], "monday");
    let token = to.ok("volume receive", &["copy", "--resume-token"]);
    let token = token.trim_end();
    assert_eq!(json["receiving"]["resume_token"], token);
    refused(&to.run("volume snapshot", &["copy", "new"]), "is not complete; go on with");
    let rest = stream(&from, &["disk@monday", "--resume", token]);
    assert!(rest.len() < 3 << 20, "{} bytes", rest.len());
    let run = receive(&to, &rest);
    assert_eq!(run.status, Some(0), "{}", run.errors);
    assert!(run.out.contains("as snapshot \"monday\": 2.0 MiB of data"), "{}", run.out);
    assert!(data(&to, "copy") == data(&from, "disk"));
    refused(&to.run("volume receive", &["copy", "--resume-token"]), "is not being received");
    refused(&from.run("volume send", &["disk", "--resume", token]), "is for another moment");
    let run = from.run("volume send", &["disk", "--resume", "monday"]);
    assert!(run.errors.contains("give a token that"), "{}", run.errors);
}

#[test]
fn a_receiver_that_is_killed_has_what_it_has_recorded() {
    let (from, to) = (source(), World::new());
    with_volumes(&from, |volumes| {
        let disk = volumes.volume("disk").expect("there");
        disk.write(4 << 20, &vec![9; 40 << 20], Acknowledge::Durable).expect("written");
    });
    let whole = stream(&from, &["disk"]);
    let server = Server::start(&to);
    let mut receiver = to
        .command("volume receive", &["copy"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program runs");
    let mut input = receiver.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut input, &whole[..40 << 20]).expect("written");
    // The server has all of it but what is in the pipe.
    let began = Instant::now();
    let token = || to.ok("volume receive", &["copy", "--resume-token"]);
    let offset = || -> u64 {
        let token = token();
        token.trim_end().rsplit('-').next().expect("some").parse().expect("a number")
    };
    while offset() < 32 << 20 {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", offset());
        std::thread::sleep(Duration::from_millis(20));
    }
    server.kill();
    drop(receiver.wait());
    let kept = offset();
    assert!(kept >= 32 << 20, "{kept}");
    let run = receive(&to, &whole);
    assert_eq!(run.status, Some(0), "{}", run.errors);
    assert!(data(&to, "copy") == data(&from, "disk"));
}

#[test]
fn a_sender_whose_reader_has_gone_holds_nothing() {
    let world = source();
    with_volumes(&world, |volumes| {
        let disk = volumes.volume("disk").expect("there");
        disk.write(4 << 20, &vec![9; 16 << 20], Acknowledge::Durable).expect("written");
    });
    let server = Server::start(&world);
    let mut sender = world
        .command("volume send", &["disk"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut stream = sender.stdout.take().expect("a pipe");
    stream.read_exact(&mut [0; 1000]).expect("some bytes");
    world.ok("volume delete", &["disk"]);
    let reserved = || {
        let status = world.ok("stat", &["--json"]);
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        status["reserved_bytes"].as_u64().expect("a number")
    };
    std::thread::sleep(Duration::from_millis(500));
    assert!(reserved() >= 20 << 20, "it is being sent");
    drop(stream);
    let sent: Run = sender.wait_with_output().expect("it ends").into();
    refused(&sent, "the stream fails at byte ");
    let began = Instant::now();
    while reserved() > 8 << 20 {
        assert!(began.elapsed() < Duration::from_secs(30), "{} bytes", reserved());
        std::thread::sleep(Duration::from_millis(50));
    }
    server.stop();
}

#[test]
fn a_volume_that_is_not_complete_is_no_export() {
    if !are_there(&["nbdinfo"]) {
        return;
    }
    let (from, to) = (source(), World::new());
    let whole = stream(&from, &["disk@monday"]);
    assert_eq!(receive(&to, &whole[..1 << 20]).status, Some(2));
    let socket = to.path("nbd");
    let server = Server::with(&to, &["--unix", &text(&socket)]);
    let size = || run("nbdinfo", &["--size", &uri(&socket, "copy")]);
    assert!(size().is_err());
    assert_eq!(receive(&to, &whole).status, Some(0));
    assert_eq!(size(), Ok("1073741824\n".to_owned()));
    server.stop();
}

#[test]
fn wrong_uses_are_refused() {
    let world = source();
    let terminal =
        || OpenOptions::new().read(true).write(true).open("/dev/ptmx").expect("a terminal");
    let run = world.command("volume send", &["disk"]).stdout(terminal()).output();
    refused(&run.expect("the program runs").into(), "standard output is a terminal; send the");
    let run = world.command("volume receive", &["copy"]).stdin(terminal()).output();
    refused(&run.expect("the program runs").into(), "standard input is a terminal; give it");
    let run = world.feed("volume receive", "some text, which is longer\n", &["copy"]);
    refused(&run, "at byte 0: this is no stream of `upsweep volume send`");
    assert!(!world.ok("volume list", &[]).contains("copy"));
    let run = world.run("volume send", &["disk@monday", "--at", "-1s"]);
    refused(&run, "give one moment: disk@monday, or disk with --at");
    refused(&world.run("volume send", &["disk@none"]), "has no snapshot \"none\"");
    refused(&world.run("volume send", &["none"]), "no volume \"none\"");
    refused(&world.run("volume receive", &["none", "--resume-token"]), "no volume \"none\"");
    refused(&world.run("volume receive", &["disk", "--resume-token"]), "is not being received");
}
