//! The handshake: what each option does, and the owner's answers.
//!
//! Whether an option can be refused is decided at its header, so that the data of a refused one are
//! skipped and not held. `EXPORT_NAME` cannot be answered with an error: what is wrong with it ends
//! the session.

use super::{Event, Session, State};
use crate::config::TlsMode;
use crate::export::{Export, select};
use crate::fault::{End, Misuse, Refusal, Violation};
use crate::format::{
    self, Framing, OptionError, PAYLOAD_BYTES_DEFAULT, handshake_flag, info, is_string, option,
};
use crate::request::Selected;

/// The longest data of an option; longer ones are skipped and refused.
pub const OPTION_BYTES_MAX: u32 = 1 << 16;
/// The most contexts that a client may select; more are refused.
pub const SELECTED_CONTEXTS_MAX: usize = 32;

/// What a client wants an export for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To know about it.
    Describe,
    /// To use it on this connection. It does if [`Session::export`] is there behind the answer.
    Open,
}

/// What the owner has been asked.
pub(super) enum Question {
    List,
    ExportName { name: String },
    Info { option: u32, name: String, items: Vec<u16> },
    Contexts { option: u32, name: String, queries: Vec<String> },
}

impl<B: AsRef<[u8]>> Session<B> {
    pub(super) fn client_flags(&mut self, held: &[u8]) -> bool {
        let (fixed, no_zeroes) = (handshake_flag::FIXED_NEWSTYLE, handshake_flag::NO_ZEROES);
        let flags = format::client_flags(held).and_then(|flags| u16::try_from(flags).ok());
        let Some(flags) = flags.filter(|flags| flags & !(fixed | no_zeroes) == 0) else {
            return self.violated(Violation::ClientFlags);
        };
        self.is_fixed = flags & fixed != 0;
        self.has_zeroes = flags & no_zeroes == 0;
        self.state = State::OptionHeader;
        true
    }

    pub(super) fn option_header(&mut self, held: &[u8]) -> bool {
        let Some((option, bytes)) = format::option_header(held) else {
            return self.violated(Violation::OptionMagic);
        };
        if bytes > PAYLOAD_BYTES_DEFAULT {
            return self.violated(Violation::OptionTooLong);
        }
        if option == option::EXPORT_NAME {
            return self.export_name_header(bytes);
        }
        if !self.is_fixed {
            return self.violated(Violation::NotFixedNewstyle);
        }
        if option == option::SET_META_CONTEXT {
            // Also if it fails.
            self.selected = None;
        }
        self.state = match self.refuse(option, bytes) {
            // Its data are ignored.
            Ok(()) if option == option::ABORT => {
                State::OptionSkip { option, bytes: bytes.into(), reply: Ok(()) }
            }
            Ok(()) => State::OptionData { option, bytes: bytes as usize },
            Err(error) => State::OptionSkip { option, bytes: bytes.into(), reply: Err(error) },
        };
        true
    }

    fn export_name_header(&mut self, bytes: u32) -> bool {
        if bytes as usize > format::STRING_BYTES_MAX || self.framing == Framing::Extended {
            return self.violated(Violation::ExportName);
        }
        if self.needs_tls() || self.shutting_down {
            return self.end(End::Refused);
        }
        self.state = State::OptionData { option: option::EXPORT_NAME, bytes: bytes as usize };
        true
    }

    /// Refuses an option whose number, length or moment is wrong.
    fn refuse(&self, option: u32, bytes: u32) -> Result<(), OptionError> {
        if option == option::ABORT {
            return Ok(());
        }
        if self.needs_tls() && option != option::STARTTLS {
            return Err(OptionError::TlsRequired);
        }
        if self.shutting_down {
            return Err(OptionError::Shutdown);
        }
        let longest = match option {
            option::LIST | option::STARTTLS | option::STRUCTURED_REPLY => 0,
            option::EXTENDED_HEADERS if self.config.extended_headers => 0,
            option::INFO | option::GO => OPTION_BYTES_MAX,
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => OPTION_BYTES_MAX,
            _ => return Err(OptionError::Unsupported),
        };
        if bytes > OPTION_BYTES_MAX {
            return Err(OptionError::TooBig);
        }
        if bytes > longest {
            return Err(OptionError::Invalid);
        }
        match option {
            option::STARTTLS if self.config.tls == TlsMode::Off => Err(OptionError::Policy),
            option::STARTTLS if self.is_encrypted => Err(OptionError::Invalid),
            option::STRUCTURED_REPLY if self.framing == Framing::Extended => {
                Err(OptionError::ExtendedHeadersRequired)
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT
                if self.framing == Framing::Simple =>
            {
                Err(OptionError::Invalid)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn option_data(&mut self, option: u32, data: &[u8]) -> bool {
        match option {
            option::EXPORT_NAME => {
                let Some(name) = format::string(data) else {
                    return self.violated(Violation::ExportName);
                };
                self.ask(Question::ExportName { name })
            }
            option::LIST => self.ask(Question::List),
            option::STARTTLS => {
                self.output.put(|out| format::put_ack(out, option));
                self.state = State::Tls;
                // Bytes that are there already are a violation.
                true
            }
            option::STRUCTURED_REPLY => {
                self.framing = Framing::Structured;
                self.finish_option(option, Ok(()))
            }
            option::EXTENDED_HEADERS => {
                self.framing = Framing::Extended;
                self.finish_option(option, Ok(()))
            }
            option::INFO | option::GO => match format::info_query(data) {
                Some((name, items)) => self.ask(Question::Info { option, name, items }),
                None => self.finish_option(option, Err(OptionError::Invalid)),
            },
            _ => match format::context_query(data) {
                Some((name, queries)) => self.ask(Question::Contexts { option, name, queries }),
                None => self.finish_option(option, Err(OptionError::Invalid)),
            },
        }
    }

    fn ask(&mut self, question: Question) -> bool {
        self.event = Some(match &question {
            Question::List => Event::List,
            Question::ExportName { name } => {
                Event::Lookup { name: name.clone(), purpose: Purpose::Open }
            }
            Question::Info { option, name, .. } => {
                let is_go = *option == option::GO;
                let purpose = if is_go { Purpose::Open } else { Purpose::Describe };
                Event::Lookup { name: name.clone(), purpose }
            }
            Question::Contexts { name, .. } => {
                Event::Lookup { name: name.clone(), purpose: Purpose::Describe }
            }
        });
        self.state = State::Owner(question);
        false
    }

    /// Writes the last reply to an option.
    pub(super) fn finish_option(&mut self, option: u32, reply: Result<(), OptionError>) -> bool {
        self.output.put(|out| match reply {
            Ok(()) => format::put_ack(out, option),
            Err(error) => format::put_option_error(out, option, error),
        });
        if option == option::ABORT {
            return self.end(End::Aborted);
        }
        self.state = State::OptionHeader;
        true
    }

    /// Answers [`Event::List`] with name and description of each export that the client may know
    /// of, or refuses. The output grows by what is listed.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotAsked`] if it was not asked; [`Misuse::Export`] if a name or a description is
    /// too long or has a NUL, after which another answer may be given.
    pub fn answer_list(&mut self, answer: Result<&[(&str, &str)], Refusal>) -> Result<(), Misuse> {
        if !matches!(self.state, State::Owner(Question::List)) {
            return Err(Misuse::NotAsked);
        }
        let reply =
            if self.shutting_down { Err(OptionError::Shutdown) } else { answer.map_err(refused) };
        let result = match reply {
            Ok(listed) => {
                let is_valid = |(name, text): &(&str, &str)| is_string(name) && is_string(text);
                if !listed.iter().all(is_valid) {
                    return Err(crate::InvalidExport::Text.into());
                }
                self.output.put(|out| {
                    listed.iter().for_each(|(name, text)| format::put_listed(out, name, text));
                });
                Ok(())
            }
            Err(error) => Err(error),
        };
        self.finish_option(option::LIST, result);
        Ok(())
    }

    /// Answers [`Event::Lookup`] with the export, or refuses. It need not be the same as before.
    /// Whether the client then opened it says [`export`](Self::export).
    ///
    /// # Errors
    ///
    /// [`Misuse::NotAsked`] if it was not asked; [`Misuse::Export`] if the export cannot be
    /// expressed, after which another answer may be given.
    pub fn answer_lookup(&mut self, answer: Result<Export, Refusal>) -> Result<(), Misuse> {
        if !matches!(self.state, State::Owner(ref question) if !matches!(question, Question::List))
        {
            return Err(Misuse::NotAsked);
        }
        if let Ok(export) = &answer {
            export.check(self.config.payload_bytes_max)?;
        }
        let State::Owner(question) = std::mem::replace(&mut self.state, State::OptionHeader) else {
            unreachable!("checked above")
        };
        match question {
            Question::ExportName { name } => self.enter_by_name(&name, answer),
            Question::Info { option, name, items } => self.tell(option, &name, &items, answer),
            Question::Contexts { option, name, queries } => {
                let result = self.tell_contexts(option, name, &queries, answer);
                self.finish_option(option, result);
            }
            Question::List => unreachable!("checked above"),
        }
        Ok(())
    }

    fn enter_by_name(&mut self, name: &str, answer: Result<Export, Refusal>) {
        let Ok(export) = answer else {
            self.end(End::Refused);
            return;
        };
        let lacks_sizes = self.config.block_sizes_required
            && export.has_unusual_sizes(self.config.payload_bytes_max);
        if lacks_sizes || self.lacks_tls(&export) || self.shutting_down {
            self.end(End::Refused);
            return;
        }
        let flags = self.export_flags(name, &export);
        let zeroes = self.has_zeroes;
        self.output.put(|out| format::put_export(out, export.size, flags, zeroes));
        self.enter(name, export);
    }

    /// Replies to `INFO` and `GO`.
    fn tell(&mut self, option: u32, name: &str, items: &[u16], answer: Result<Export, Refusal>) {
        let export = match self.permit(answer) {
            Ok(export) => export,
            Err(error) => {
                self.finish_option(option, Err(error));
                return;
            }
        };
        let payload = self.config.payload_bytes_max;
        let sizes = [export.block_bytes_min, export.block_bytes_preferred, payload];
        let flags = self.export_flags(name, &export);
        let lacks_sizes = self.config.block_sizes_required
            && export.has_unusual_sizes(payload)
            && !items.contains(&info::BLOCK_SIZE);
        self.output.put(|out| {
            // Also to clients that did not ask: some look at it.
            format::put_info_sizes(out, option, sizes);
            if lacks_sizes {
                return;
            }
            format::put_info_export(out, option, export.size, flags);
            if items.contains(&info::NAME) {
                format::put_info_text(out, option, info::NAME, &export.name);
            }
            if items.contains(&info::DESCRIPTION) && !export.description.is_empty() {
                format::put_info_text(out, option, info::DESCRIPTION, &export.description);
            }
        });
        if lacks_sizes {
            self.finish_option(option, Err(OptionError::BlockSizeRequired));
            return;
        }
        self.finish_option(option, Ok(()));
        if option == option::GO {
            self.enter(name, export);
        }
    }

    /// Replies to queries of contexts, but for the last reply.
    fn tell_contexts(
        &mut self,
        option: u32,
        name: String,
        queries: &[String],
        answer: Result<Export, Refusal>,
    ) -> Result<(), OptionError> {
        // Only INFO and GO may be answered with the truth about an export that needs TLS.
        let hide = |error| {
            if error == OptionError::TlsRequired { OptionError::Unknown } else { error }
        };
        let export = self.permit(answer).map_err(hide)?;
        let is_listing = option == option::LIST_META_CONTEXT;
        let found = select(&export.contexts, queries, is_listing).ok_or(OptionError::Invalid)?;
        if is_listing {
            self.output.put(|out| {
                let names = found.iter().map(|context| context.name());
                names.for_each(|name| format::put_context(out, option, 0, &name));
            });
            return Ok(());
        }
        if found.len() > SELECTED_CONTEXTS_MAX {
            return Err(OptionError::TooBig);
        }
        let mut selected = Vec::new();
        for context in found {
            let id = self.context_id_next;
            self.context_id_next = id.wrapping_add(1);
            self.output.put(|out| format::put_context(out, option, id, &context.name()));
            selected.push(Selected { id, context: context.clone() });
        }
        self.selected = Some((name, selected));
        Ok(())
    }

    /// The export, if this client may know of it now.
    fn permit(&self, answer: Result<Export, Refusal>) -> Result<Export, OptionError> {
        let export = answer.map_err(refused)?;
        if self.shutting_down {
            return Err(OptionError::Shutdown);
        }
        match self.config.tls {
            _ if !self.lacks_tls(&export) => Ok(export),
            TlsMode::Off => Err(OptionError::Policy),
            TlsMode::Optional | TlsMode::Required => Err(OptionError::TlsRequired),
        }
    }

    fn lacks_tls(&self, export: &Export) -> bool {
        export.tls_only && !self.is_encrypted
    }

    /// Contexts that were selected for another export do not count.
    fn export_flags(&self, name: &str, export: &Export) -> u16 {
        let selected = self.selected.as_ref().filter(|(of, _)| of == name);
        export.flags(self.framing, selected.is_some_and(|(_, selected)| !selected.is_empty()))
    }

    fn enter(&mut self, name: &str, export: Export) {
        self.selected = self.selected.take().filter(|(of, _)| of == name);
        self.export = Some(export);
        self.state = State::RequestHeader;
    }
}

fn refused(refusal: Refusal) -> OptionError {
    match refusal {
        Refusal::Unknown => OptionError::Unknown,
        Refusal::Policy => OptionError::Policy,
    }
}
