//! The command line of `dump` and `load`: records as lines.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{OpenArgs, SourceArgs};

/// How records are written as lines.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordFormat {
    /// KEY<TAB>VALUE, and for numbers <TAB>KIND
    Tsv,
    /// {"key":"KEY","value":"VALUE"}, and for numbers "kind":"KIND"
    Jsonl,
}

/// Write all records of a table or hash table as lines
///
/// Records are in key order; those of a hash table are in the order of the hashes of their keys. Of
/// a table of expiring records, those that have expired and the times of the others are left out.
///
/// A line is KEY<TAB>VALUE[<TAB>KIND] or, with --format jsonl, a JSON object of these as strings:
/// {"key":"KEY","value":"VALUE","kind":"KIND"}.
///
/// KIND is i64, u64 or f64 for numbers of 8 bytes, which are written in decimal; without it, VALUE
/// is bytes. In keys and bytes, \t is a tab, \n a line feed, \\ a backslash and \xHH the byte with
/// that hexadecimal number; in JSON, that is so inside of the strings. Infinite numbers are inf and
/// -inf; every NaN is NaN.
///
/// `upsweep load` makes an equal table from lines in key order. `sort` can order the lines of a
/// hash table only if no key has escapes; `upsweep load --help` says what to do otherwise.
///
/// The lines are written to FILE.dumping, which is renamed to FILE once it is complete and on
/// stable media. It is removed if writing fails, and left behind if the command is killed. Standard
/// output is complete if the exit status is 0. An existing FILE is refused.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  upsweep dump hits.upsweep hits.tsv
  upsweep dump hits.upsweep --format jsonl | head
  upsweep dump hits.upsweep --at monday monday.tsv
  upsweep dump hits.upsweep | upsweep load copy.upsweep"
)]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// File to create; - is standard output
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// How to write records
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "tsv")]
    pub(crate) format: RecordFormat,
}

/// Fill a new table with records in key order, one per line
///
/// Lines are as `upsweep dump` writes them: KEY<TAB>VALUE[<TAB>KIND] or, with --format jsonl,
/// {"key":"KEY","value":"VALUE","kind":"KIND"}. KIND is i64, u64 or f64; without it, VALUE is
/// bytes. In keys and bytes, \t is a tab, \n a line feed, \\ a backslash and \xHH the byte with
/// that hexadecimal number. Empty lines are errors.
///
/// Keys must be in ascending order of the bytes that they stand for. The table must be ordered and
/// empty, or not exist. At a malformed line or one out of order the command ends with status 2 and
/// loads nothing; a table that it has created is dropped again. If it is killed, such a table
/// stays, empty. When the command ends with status 0, everything is durable.
///
/// `sort`, as in the examples, gives this order only if no key has escapes, because an escape does
/// not sort like the byte that it stands for. With other keys, lines of `upsweep dump` can be
/// applied in any order instead, if all numbers are of kind i64. That is slower, and not all or
/// nothing:
///
///   awk -F'\t' '{ print ($3 == "i64" ? "add" : "put") "\t" $1 "\t" $2 }' sessions.tsv |
///     upsweep apply hits.upsweep --table sorted
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  upsweep load hits.upsweep hits.tsv
  upsweep load hits.upsweep hits.jsonl --format jsonl --table archive --fill 100
  LC_ALL=C sort -t \"$(printf '\\t')\" -k 1,1 words.tsv | upsweep load words.upsweep"
)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// File with the records; - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) file: PathBuf,
    /// Table to fill; created if it does not exist
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub(crate) table: String,
    /// How records are written
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "tsv")]
    pub(crate) format: RecordFormat,
    /// How full to make the blocks, 50 to 100 per cent; free room in them delays their first splits
    #[arg(long, value_name = "PERCENT", default_value_t = 90,
          value_parser = clap::value_parser!(u32).range(50..=100))]
    pub(crate) fill: u32,
    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
