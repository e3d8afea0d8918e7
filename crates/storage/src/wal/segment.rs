//! Names of the log's files.

use crate::ids::Lsn;

/// Where the log's files live, below the data directory.
pub const WAL_DIR: &str = "pg_wal";
/// There is one timeline.
const TIMELINE: u32 = 1;

/// The path of the segment with number `segno`: PostgreSQL's 24 hexadecimal digits.
pub fn segment_path(segno: u64, segment_size: u64) -> String {
    let per_id = (1u64 << 32) / segment_size;
    format!("{WAL_DIR}/{TIMELINE:08X}{:08X}{:08X}", segno / per_id, segno % per_id)
}

/// The number in a segment's file name; `None` for any other name.
pub fn parse_segment_name(name: &str, segment_size: u64) -> Option<u64> {
    let hex =
        name.len() == 24 && name.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b));
    if !hex {
        return None;
    }
    let part = |at: usize| u32::from_str_radix(&name[at..at + 8], 16).ok();
    let (timeline, high, low) = (part(0)?, part(8)?, part(16)?);
    let per_id = (1u64 << 32) / segment_size;
    let fits = timeline == TIMELINE && u64::from(low) < per_id;
    fits.then(|| u64::from(high) * per_id + u64::from(low))
}

/// The segment that holds the byte at `lsn`.
pub fn segment_of(lsn: Lsn, segment_size: u64) -> u64 {
    lsn.raw() / segment_size
}
