//! What can be locked.

use crate::ids::{RelId, RowId, Xid};
use std::fmt;

/// The key of an advisory lock: one 64-bit number or two of 32, in spaces of their own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AdvisoryKey {
    One(i64),
    Two(i32, i32),
}

/// Names one lockable object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LockTag {
    /// A table, index, view or sequence, by OID.
    Relation(u32),
    /// A transaction, held by itself while it runs. Others wait for its end.
    Xid(Xid),
    /// The queue for one row: whoever waits for the row's holder takes this first.
    Tuple(RelId, RowId),
    /// Any other object of the catalog: the catalog's OID and the object's.
    Object(u32, u32),
    Advisory(AdvisoryKey),
    /// A session's running transaction, whether it has an xid or not: the owner's number and the
    /// transaction's among the owner's. Nobody waits for it; views show it.
    Virtual(u32, u64),
}

impl LockTag {
    /// `pg_locks.locktype`.
    pub const fn kind(&self) -> &'static str {
        match self {
            LockTag::Relation(_) => "relation",
            LockTag::Xid(_) => "transactionid",
            LockTag::Tuple(..) => "tuple",
            LockTag::Object(..) => "object",
            LockTag::Advisory(_) => "advisory",
            LockTag::Virtual(..) => "virtualxid",
        }
    }

    /// The object as a deadlock report names it.
    pub(crate) fn describe(&self, database: u32) -> String {
        match self {
            LockTag::Relation(oid) => format!("relation {oid} of database {database}"),
            LockTag::Xid(xid) => format!("transaction {xid}"),
            LockTag::Tuple(rel, row) => {
                format!("tuple {row} of relation {rel} of database {database}")
            }
            LockTag::Object(class, id) => {
                format!("object {id} of class {class} of database {database}")
            }
            LockTag::Advisory(key) => {
                let (high, low, form) = key.parts();
                format!("advisory lock [{database},{high},{low},{form}]")
            }
            LockTag::Virtual(owner, number) => format!("virtual transaction {owner}/{number}"),
        }
    }
}

impl AdvisoryKey {
    /// `pg_locks.classid`, `objid` and `objsubid`.
    pub const fn parts(self) -> (u32, u32, u16) {
        match self {
            AdvisoryKey::One(key) => ((key as u64 >> 32) as u32, key as u32, 1),
            AdvisoryKey::Two(high, low) => (high as u32, low as u32, 2),
        }
    }
}

impl fmt::Display for LockTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockTag::Relation(oid) => write!(f, "relation {oid}"),
            LockTag::Xid(xid) => write!(f, "transaction {xid}"),
            LockTag::Tuple(rel, row) => write!(f, "tuple {row} of {rel}"),
            LockTag::Object(class, id) => write!(f, "object {class}/{id}"),
            LockTag::Advisory(key) => {
                let (high, low, form) = key.parts();
                write!(f, "advisory {high}/{low}/{form}")
            }
            LockTag::Virtual(owner, number) => write!(f, "virtual {owner}/{number}"),
        }
    }
}
