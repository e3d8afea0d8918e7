//! `inkling waldump`: the write-ahead log, one line a record. Only reads; a server may be running.

use super::{Directory, Outcome, must_be_data_directory};
use clap::Args;
use inkling_storage::engine::read_control;
use inkling_storage::ids::Lsn;
use inkling_storage::recovery::RecordWords;
use inkling_storage::vfs::RealVfs;
use inkling_storage::wal::{DecodedRecord, EndOfLog, WalReader, describe_with};
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::sync::Arc;

#[derive(Args)]
pub struct WaldumpArgs {
    #[command(flatten)]
    directory: Directory,
    /// Where to begin: the start of a record, as X/Y. Default: the last checkpoint's redo point.
    #[arg(long, value_name = "LSN", value_parser = parse_lsn)]
    start: Option<Lsn>,
    /// Only records about this relation, by its file's number (pg_class.relfilenode).
    #[arg(long, value_name = "REL")]
    relation: Option<u32>,
    /// Only records of this transaction.
    #[arg(long, value_name = "XID")]
    xid: Option<u64>,
    /// Print at most so many records.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

fn parse_lsn(text: &str) -> Result<Lsn, String> {
    Lsn::parse(text).ok_or_else(|| "not a log position, such as 0/1A2B3C8".to_owned())
}

pub fn waldump(args: &WaldumpArgs) -> Outcome<ExitCode> {
    let root = &args.directory.data;
    must_be_data_directory(root)?;
    let vfs = Arc::new(RealVfs::new(root));
    let control = read_control(&*vfs).map_err(|e| e.to_string())?;
    let start = args.start.unwrap_or(control.redo);
    let mut reader = WalReader::with_segment_size(vfs, start, control.wal_segment_size);
    let mut out = BufWriter::new(io::stdout().lock());
    match dump(&mut reader, args, &mut out) {
        // Whoever reads has seen enough.
        Err(Failure::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(Failure::Output(e)) => Err(format!("could not write: {e}")),
        Err(Failure::Log(what)) => Err(what),
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

enum Failure {
    Output(io::Error),
    Log(String),
}

/// Whether the options ask for this record.
fn wanted(args: &WaldumpArgs, record: &DecodedRecord) -> bool {
    let touches = |rel: u32| record.blocks.iter().any(|block| block.id.rel.raw() == rel);
    args.relation.is_none_or(touches) && args.xid.is_none_or(|xid| record.xid.raw() == xid)
}

fn dump(reader: &mut WalReader, args: &WaldumpArgs, out: &mut impl Write) -> Result<(), Failure> {
    let (mut count, limit) = (0, args.limit.unwrap_or(u64::MAX));
    while count < limit {
        match reader.next().map_err(|e| Failure::Log(e.to_string()))? {
            Some((_, record)) => {
                if !wanted(args, &record) {
                    continue;
                }
                let line = describe_with(&record, &RecordWords);
                writeln!(out, "{line}").map_err(Failure::Output)?;
                count += 1;
            }
            None => break,
        }
    }
    if let Some(end) = reader.end_of_log() {
        let (at, reason) = (reader.position(), EndOfLog::reason(end));
        writeln!(out, "the log ends at {at}: {reason}").map_err(Failure::Output)?;
    }
    out.flush().map_err(Failure::Output)
}
