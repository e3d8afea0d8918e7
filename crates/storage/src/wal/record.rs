//! The log record: layout, encoding, decoding. The one home of the layout.
//!
//! ```text
//!  byte 0          4        8       16     17      18        19      20
//!  | total_len u32 | crc u32| xid u64| kind | flags | nblocks | zero | blocks ... | data ... | pad
//!
//!  block:  | rel u32 | block u32 | fork | class | flags | zero | len u32 | payload, len bytes |
//!  payload of an image:  | hole start u16 | hole length u16 | page without the hole, maybe lz4 |
//! ```
//!
//! Integers are little-endian. `total_len` counts header, blocks and data; zero bytes pad the
//! record to the next multiple of 8, where the following one starts. What the blocks leave of
//! `total_len` is the main data.
//!
//! `crc` is CRC-32C over blocks and data, then over the header without the field itself, then over
//! the record's start position (8 bytes that are not stored). In this order the long part is
//! summed before the position is known, outside the insertion lock; and a record is valid at one
//! position of the log only, so the old contents of a recycled file never pass for new records.
//!
//! A page image leaves out the bytes between `lower` and `upper`, which come back as zeros. It
//! carries the page as it was *before* its LSN was stamped: whoever restores it stamps the
//! record's end.
//!
//! `total_len` = 0 cannot be a record: a zero-filled file reads as "the log ends here".

use crate::ids::{Fork, Lsn, PageId, RelId, Xid};
use crate::page::{HEADER_SIZE as PAGE_HEADER_SIZE, PAGE_SIZE, Page, PageClass};

/// Bytes of a record's header.
pub const RECORD_HEADER_SIZE: usize = 20;
/// Bytes of a block's header inside a record.
pub const BLOCK_HEADER_SIZE: usize = 16;
/// Bytes in front of an image.
const IMAGE_HEADER_SIZE: usize = 4;
/// No record is longer. (The ring may allow less.)
pub const MAX_RECORD_LEN: usize = 64 << 20;

const LEN_AT: usize = 0;
const CRC_AT: usize = 4;
const XID_AT: usize = 8;
const KIND_AT: usize = 16;
const FLAGS_AT: usize = 17;
const NBLOCKS_AT: usize = 18;
const ZERO_AT: usize = 19;

const _: () = assert!(CRC_AT == LEN_AT + 4 && XID_AT == CRC_AT + 4 && KIND_AT == XID_AT + 8);
const _: () = assert!(ZERO_AT + 1 == RECORD_HEADER_SIZE);

const BLOCK_HAS_IMAGE: u8 = 1;
const BLOCK_WILL_INIT: u8 = 2;
const BLOCK_COMPRESSED: u8 = 4;
const BLOCK_KNOWN_FLAGS: u8 = BLOCK_HAS_IMAGE | BLOCK_WILL_INIT | BLOCK_COMPRESSED;

/// What a record says, and so who replays it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RecordKind {
    /// Changes of pages, replayed by page class.
    PageChange = 1,
    Commit = 2,
    Abort = 3,
    Checkpoint = 4,
    /// A relation's files come into being.
    RelCreate = 5,
    /// A relation's files go (also listed inside commit and abort data).
    RelUnlink = 6,
    /// Transaction ids below the one named may have been handed out.
    NextXid = 7,
    /// Relation ids below the one named may have been handed out.
    NextRel = 8,
    RelTruncate = 9,
    /// Says nothing; used to fill and to test.
    Noop = 10,
    /// A transaction goes on without its session, and over restarts, until it is ended by name.
    Prepare = 11,
}

impl RecordKind {
    pub const fn from_raw(raw: u8) -> Option<Self> {
        match raw {
            1 => Some(RecordKind::PageChange),
            2 => Some(RecordKind::Commit),
            3 => Some(RecordKind::Abort),
            4 => Some(RecordKind::Checkpoint),
            5 => Some(RecordKind::RelCreate),
            6 => Some(RecordKind::RelUnlink),
            7 => Some(RecordKind::NextXid),
            8 => Some(RecordKind::NextRel),
            9 => Some(RecordKind::RelTruncate),
            10 => Some(RecordKind::Noop),
            11 => Some(RecordKind::Prepare),
            _ => None,
        }
    }

    /// The name in dumps and statistics.
    pub const fn name(self) -> &'static str {
        match self {
            RecordKind::PageChange => "Page",
            RecordKind::Commit => "Commit",
            RecordKind::Abort => "Abort",
            RecordKind::Checkpoint => "Checkpoint",
            RecordKind::RelCreate => "RelCreate",
            RecordKind::RelUnlink => "RelUnlink",
            RecordKind::NextXid => "NextXid",
            RecordKind::NextRel => "NextRel",
            RecordKind::RelTruncate => "RelTruncate",
            RecordKind::Noop => "Noop",
            RecordKind::Prepare => "Prepare",
        }
    }
}

/// `wal_compression`: what is done to page images.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WalCompression {
    #[default]
    Off,
    Lz4,
}

/// What a record carries for one page.
#[derive(Clone, Copy, Debug)]
pub enum BlockBody<'a> {
    /// The page class's own operations, encoded by it.
    Ops(&'a [u8]),
    /// The page after the change.
    Image(&'a Page),
}

/// Builds one record; can be used again after [`reset`](Self::reset), keeping its memory.
#[derive(Debug)]
pub struct RecordBuilder {
    kind: RecordKind,
    flags: u8,
    xid: Xid,
    nblocks: u8,
    images: u32,
    image_bytes: u64,
    compression: WalCompression,
    blocks: Vec<u8>,
    data: Vec<u8>,
    scratch: Vec<u8>,
}

impl RecordBuilder {
    pub fn new(kind: RecordKind, xid: Xid) -> Self {
        RecordBuilder {
            kind,
            flags: 0,
            xid,
            nblocks: 0,
            images: 0,
            image_bytes: 0,
            compression: WalCompression::Off,
            blocks: Vec::new(),
            data: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Empties the builder for a new record. Memory and the compression setting stay.
    pub fn reset(&mut self, kind: RecordKind, xid: Xid) {
        self.kind = kind;
        self.xid = xid;
        self.flags = 0;
        self.nblocks = 0;
        self.images = 0;
        self.image_bytes = 0;
        self.blocks.clear();
        self.data.clear();
    }

    /// Compresses the images that are added from now on.
    pub fn set_compression(&mut self, compression: WalCompression) {
        self.compression = compression;
    }

    /// One byte whose meaning belongs to the record's kind.
    pub fn set_flags(&mut self, flags: u8) {
        self.flags = flags;
    }

    pub fn kind(&self) -> RecordKind {
        self.kind
    }

    pub fn xid(&self) -> Xid {
        self.xid
    }

    pub fn block_count(&self) -> usize {
        usize::from(self.nblocks)
    }

    /// How many of the blocks are page images.
    pub fn image_count(&self) -> u32 {
        self.images
    }

    /// Bytes that the images take in the record.
    pub fn image_bytes(&self) -> u64 {
        self.image_bytes
    }

    /// Adds a page. `init`: replay starts from a zero page instead of reading it.
    ///
    /// Panics on the 256th block: a record's shape is the program's, not the user's.
    pub fn block(&mut self, id: PageId, class: PageClass, init: bool, body: BlockBody<'_>) {
        self.nblocks = self.nblocks.checked_add(1).expect("a record has at most 255 blocks");
        let mut flags = if init { BLOCK_WILL_INIT } else { 0 };
        let header_at = self.blocks.len();
        self.blocks.extend_from_slice(&id.rel.raw().to_le_bytes());
        self.blocks.extend_from_slice(&id.block.to_le_bytes());
        self.blocks.extend_from_slice(&[id.fork as u8, class as u8, 0, 0]);
        self.blocks.extend_from_slice(&[0; 4]);
        match body {
            BlockBody::Ops(ops) => self.blocks.extend_from_slice(ops),
            BlockBody::Image(page) => {
                flags |= BLOCK_HAS_IMAGE | self.push_image(page);
                self.images += 1;
            }
        }
        let len = self.blocks.len() - header_at - BLOCK_HEADER_SIZE;
        if flags & BLOCK_HAS_IMAGE != 0 {
            self.image_bytes += len as u64;
        }
        let len = u32::try_from(len).expect("a block's part is shorter than 4 GiB");
        self.blocks[header_at + 10] = flags;
        self.blocks[header_at + 12..header_at + 16].copy_from_slice(&len.to_le_bytes());
    }

    /// Appends the image's payload; answers the flag that says how it is stored.
    fn push_image(&mut self, page: &Page) -> u8 {
        let (hole_start, hole_len) = hole_of(page);
        let bytes = page.bytes();
        let (head, tail) = (&bytes[..hole_start], &bytes[hole_start + hole_len..]);
        self.blocks.extend_from_slice(&(hole_start as u16).to_le_bytes());
        self.blocks.extend_from_slice(&(hole_len as u16).to_le_bytes());
        let at = self.blocks.len();
        if self.compression == WalCompression::Lz4 {
            self.scratch.clear();
            self.scratch.extend_from_slice(head);
            self.scratch.extend_from_slice(tail);
            let bound = lz4_flex::block::get_maximum_output_size(self.scratch.len());
            self.blocks.resize(at + bound, 0);
            let packed = lz4_flex::block::compress_into(&self.scratch, &mut self.blocks[at..]);
            match packed {
                Ok(len) if len < self.scratch.len() => {
                    self.blocks.truncate(at + len);
                    return BLOCK_COMPRESSED;
                }
                _ => self.blocks.truncate(at),
            }
        }
        self.blocks.extend_from_slice(head);
        self.blocks.extend_from_slice(tail);
        0
    }

    /// Appends to the main data.
    pub fn data(&mut self, bytes: &[u8]) {
        self.data.extend_from_slice(bytes);
    }

    /// Bytes of the record without padding: at least this much has to be reserved.
    pub fn encoded_len(&self) -> usize {
        RECORD_HEADER_SIZE + self.blocks.len() + self.data.len()
    }

    /// The header but for the position, and the sum of what follows it.
    pub(super) fn seal(&self) -> Sealed<'_> {
        let len = u32::try_from(self.encoded_len()).expect("reserve bounds a record's length");
        let mut header = [0; RECORD_HEADER_SIZE];
        header[LEN_AT..LEN_AT + 4].copy_from_slice(&len.to_le_bytes());
        header[XID_AT..XID_AT + 8].copy_from_slice(&self.xid.raw().to_le_bytes());
        header[KIND_AT] = self.kind as u8;
        header[FLAGS_AT] = self.flags;
        header[NBLOCKS_AT] = self.nblocks;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&self.blocks), &self.data);
        Sealed { header, body_crc: crc, parts: [&self.blocks, &self.data] }
    }

    /// The whole record as it stands at `start`, padding included.
    pub fn encode_at(&self, start: Lsn) -> Vec<u8> {
        let sealed = self.seal();
        let mut out = sealed.header_at(start).to_vec();
        for part in sealed.parts {
            out.extend_from_slice(part);
        }
        out.resize(padded(out.len()), 0);
        out
    }
}

/// A record that only lacks its position.
#[derive(Debug)]
pub(super) struct Sealed<'a> {
    header: [u8; RECORD_HEADER_SIZE],
    body_crc: u32,
    pub parts: [&'a [u8]; 2],
}

impl Sealed<'_> {
    /// The finished header: all that is left to do inside the insertion lock.
    #[inline]
    pub fn header_at(&self, start: Lsn) -> [u8; RECORD_HEADER_SIZE] {
        let mut header = self.header;
        let crc = finish_crc(self.body_crc, &header, start);
        header[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        header
    }

    /// Bytes without padding.
    #[inline]
    pub fn len(&self) -> usize {
        RECORD_HEADER_SIZE + self.parts[0].len() + self.parts[1].len()
    }
}

/// A length rounded up to where the next record starts.
#[inline]
pub(super) const fn padded(len: usize) -> usize {
    len.next_multiple_of(Lsn::ALIGN as usize)
}

/// The free space of a page whose header makes sense; otherwise nothing is left out.
fn hole_of(page: &Page) -> (usize, usize) {
    let (lower, upper) = (usize::from(page.lower()), usize::from(page.upper()));
    let sane = PAGE_HEADER_SIZE <= lower
        && lower <= upper
        && upper <= usize::from(page.special())
        && usize::from(page.special()) <= PAGE_SIZE;
    if sane { (lower, upper - lower) } else { (0, 0) }
}

/// What a decoded record holds for one page.
#[derive(Clone, Debug)]
pub enum DecodedBody {
    Ops(Vec<u8>),
    Image(Box<Page>),
}

/// One page of a decoded record.
#[derive(Clone, Debug)]
pub struct DecodedBlock {
    pub id: PageId,
    pub class: PageClass,
    pub init: bool,
    pub body: DecodedBody,
    /// Bytes that the body takes in the record (an image without its hole, compressed).
    pub stored_len: u32,
}

/// A record read back from the log.
#[derive(Clone, Debug)]
pub struct DecodedRecord {
    pub xid: Xid,
    pub kind: RecordKind,
    pub flags: u8,
    pub blocks: Vec<DecodedBlock>,
    pub data: Vec<u8>,
    pub start: Lsn,
    /// The record's LSN: where the next record starts.
    pub end: Lsn,
    /// Bytes without padding.
    pub total_len: u32,
}

/// Why bytes are not a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    #[error("the length is impossible")]
    Length,
    #[error("the checksum does not match")]
    Checksum,
    /// The checksum matches, but the contents make no sense: not a torn write.
    #[error("the record is malformed: {0}")]
    Malformed(&'static str),
}

/// Continues `body_crc` over the header without its checksum field and over `start`.
#[inline]
fn finish_crc(body_crc: u32, header: &[u8; RECORD_HEADER_SIZE], start: Lsn) -> u32 {
    let mut tail = [0; RECORD_HEADER_SIZE - 4 + 8];
    tail[..CRC_AT].copy_from_slice(&header[..CRC_AT]);
    tail[CRC_AT..RECORD_HEADER_SIZE - 4].copy_from_slice(&header[CRC_AT + 4..]);
    tail[RECORD_HEADER_SIZE - 4..].copy_from_slice(&start.raw().to_le_bytes());
    crc32c::crc32c_append(body_crc, &tail)
}

/// The length that a header claims; 0 where the log was never written.
pub(super) fn claimed_len(header: &[u8; RECORD_HEADER_SIZE]) -> usize {
    u32_at(header, LEN_AT) as usize
}

/// A record whose length and sum are right, where it lies.
#[derive(Clone, Copy, Debug)]
pub struct RecordRef<'a> {
    bytes: &'a [u8],
    kind: RecordKind,
    start: Lsn,
}

impl<'a> RecordRef<'a> {
    /// Checks the record that starts at `start`; `bytes` are exactly its `total_len` bytes. What
    /// its blocks hold is seen when they are asked for.
    pub fn check(bytes: &'a [u8], start: Lsn) -> Result<Self, RecordError> {
        let header: &[u8; RECORD_HEADER_SIZE] = bytes.first_chunk().ok_or(RecordError::Length)?;
        if u32_at(header, LEN_AT) as usize != bytes.len() {
            return Err(RecordError::Length);
        }
        let body_crc = crc32c::crc32c(&bytes[RECORD_HEADER_SIZE..]);
        if finish_crc(body_crc, header, start) != u32_at(header, CRC_AT) {
            return Err(RecordError::Checksum);
        }
        if header[ZERO_AT] != 0 {
            return Err(RecordError::Malformed("reserved byte of the header is set"));
        }
        let kind = RecordKind::from_raw(header[KIND_AT])
            .ok_or(RecordError::Malformed("unknown record kind"))?;
        Ok(RecordRef { bytes, kind, start })
    }

    /// One that was checked before, where it was then.
    pub(super) fn checked(bytes: &'a [u8], start: Lsn) -> Self {
        let kind = RecordKind::from_raw(bytes[KIND_AT]).expect("the kind was checked");
        RecordRef { bytes, kind, start }
    }

    pub fn xid(&self) -> Xid {
        Xid::new(u64_at(self.bytes, XID_AT))
    }

    pub fn kind(&self) -> RecordKind {
        self.kind
    }

    pub fn start(&self) -> Lsn {
        self.start
    }

    /// The record's LSN: where the next record starts.
    pub fn end(&self) -> Lsn {
        self.start.advance(self.bytes.len() as u64)
    }

    /// The blocks in order, and the main data behind them.
    pub fn blocks(&self) -> Blocks<'a> {
        Blocks { left: self.bytes[NBLOCKS_AT], rest: &self.bytes[RECORD_HEADER_SIZE..] }
    }
}

/// What of a record has not been looked at yet.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<'a> {
    left: u8,
    rest: &'a [u8],
}

impl<'a> Blocks<'a> {
    /// The next block, if there is one.
    pub fn next_block(&mut self) -> Result<Option<BlockRef<'a>>, RecordError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        BlockRef::take(&mut self.rest).map(Some)
    }

    /// After the last block: the main data.
    pub fn data(&self) -> &'a [u8] {
        self.rest
    }
}

/// One page of a record, where it lies.
#[derive(Clone, Copy, Debug)]
pub struct BlockRef<'a> {
    pub id: PageId,
    pub class: PageClass,
    pub init: bool,
    pub body: BodyRef<'a>,
    pub stored_len: u32,
}

#[derive(Clone, Copy, Debug)]
pub enum BodyRef<'a> {
    Ops(&'a [u8]),
    Image(ImageRef<'a>),
}

/// A page without its hole, maybe compressed.
#[derive(Clone, Copy, Debug)]
pub struct ImageRef<'a> {
    hole: (usize, usize),
    stored: &'a [u8],
    compressed: bool,
}

impl DecodedRecord {
    /// Decodes the record that starts at `start`; `bytes` are exactly its `total_len` bytes.
    pub fn decode(bytes: &[u8], start: Lsn) -> Result<Self, RecordError> {
        let record = RecordRef::check(bytes, start)?;
        let mut parts = record.blocks();
        let mut blocks = Vec::with_capacity(usize::from(bytes[NBLOCKS_AT]));
        while let Some(block) = parts.next_block()? {
            let body = match block.body {
                BodyRef::Ops(ops) => DecodedBody::Ops(ops.to_vec()),
                BodyRef::Image(image) => {
                    let mut page = Box::new(Page::zeroed());
                    image.restore(&mut page)?;
                    DecodedBody::Image(page)
                }
            };
            let BlockRef { id, class, init, stored_len, .. } = block;
            blocks.push(DecodedBlock { id, class, init, body, stored_len });
        }
        Ok(DecodedRecord {
            xid: record.xid(),
            kind: record.kind(),
            flags: bytes[FLAGS_AT],
            blocks,
            data: parts.data().to_vec(),
            start,
            end: record.end(),
            total_len: bytes.len() as u32,
        })
    }
}

impl<'a> BlockRef<'a> {
    fn take(rest: &mut &'a [u8]) -> Result<Self, RecordError> {
        let (header, after) = rest
            .split_first_chunk::<BLOCK_HEADER_SIZE>()
            .ok_or(RecordError::Malformed("cut block"))?;
        let fork = Fork::from_raw(header[8]).ok_or(RecordError::Malformed("unknown fork"))?;
        let class =
            PageClass::from_raw(header[9]).ok_or(RecordError::Malformed("unknown page class"))?;
        let flags = header[10];
        if flags & !BLOCK_KNOWN_FLAGS != 0 || header[11] != 0 {
            return Err(RecordError::Malformed("unknown block flags"));
        }
        let stored_len = u32_at(header, 12);
        let (payload, after) = after
            .split_at_checked(stored_len as usize)
            .ok_or(RecordError::Malformed("block longer than its record"))?;
        *rest = after;
        let body = if flags & BLOCK_HAS_IMAGE != 0 {
            BodyRef::Image(ImageRef::take(payload, flags & BLOCK_COMPRESSED != 0)?)
        } else {
            BodyRef::Ops(payload)
        };
        let id = PageId::new(RelId::new(u32_at(header, 0)), fork, u32_at(header, 4));
        Ok(BlockRef { id, class, init: flags & BLOCK_WILL_INIT != 0, body, stored_len })
    }
}

impl<'a> ImageRef<'a> {
    fn take(payload: &'a [u8], compressed: bool) -> Result<Self, RecordError> {
        let (header, stored) = payload
            .split_first_chunk::<IMAGE_HEADER_SIZE>()
            .ok_or(RecordError::Malformed("cut page image"))?;
        let hole_start = usize::from(u16::from_le_bytes([header[0], header[1]]));
        let hole_len = usize::from(u16::from_le_bytes([header[2], header[3]]));
        if hole_start + hole_len > PAGE_SIZE {
            return Err(RecordError::Malformed("hole outside the page"));
        }
        Ok(ImageRef { hole: (hole_start, hole_len), stored, compressed })
    }

    /// Writes the image over a page. On an error the page is what it was.
    pub fn restore(&self, page: &mut Page) -> Result<(), RecordError> {
        let (hole_start, hole_len) = self.hole;
        let kept = PAGE_SIZE - hole_len;
        let mut unpacked = [0; PAGE_SIZE];
        let bytes = if self.compressed {
            let len = lz4_flex::block::decompress_into(self.stored, &mut unpacked[..kept])
                .map_err(|_| RecordError::Malformed("page image does not decompress"))?;
            &unpacked[..len]
        } else {
            self.stored
        };
        if bytes.len() != kept {
            return Err(RecordError::Malformed("page image of the wrong length"));
        }
        let target = page.bytes_mut();
        target[..hole_start].copy_from_slice(&bytes[..hole_start]);
        target[hole_start..hole_start + hole_len].fill(0);
        target[hole_start + hole_len..].copy_from_slice(&bytes[hole_start..]);
        Ok(())
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(raw)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(raw)
}
