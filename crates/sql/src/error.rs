//! SQL errors, and the one table that gives every error its SQLSTATE.
//!
//! A [`SqlError`] is what a PostgreSQL client shows: severity, SQLSTATE, primary message, and
//! optionally detail, hint, position (1-based, in characters) and the names of what it speaks of.
//! Messages follow PostgreSQL's: short primary text without a full stop, facts in the detail,
//! advice in the hint.
//!
//! ```
//! use inkling_sql::error::{SqlError, State};
//! let e = SqlError::new(State::UNDEFINED_TABLE, "relation \"t\" does not exist").at(15);
//! assert_eq!(e.state.code(), "42P01");
//! ```

use inkling_storage::StorageError;
use std::fmt;

/// A five-character SQLSTATE.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct State([u8; 5]);

impl State {
    pub const fn from_code(code: &str) -> State {
        let b = code.as_bytes();
        assert!(b.len() == 5, "an SQLSTATE has five characters");
        State([b[0], b[1], b[2], b[3], b[4]])
    }

    pub fn code(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("XX000")
    }

    /// The class: the first two characters.
    pub fn class(&self) -> &str {
        &self.code()[..2]
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

macro_rules! states {
    ($($name:ident = $code:literal;)*) => {
        impl State { $(pub const $name: State = State::from_code($code);)* }
    };
}

states! {
    SUCCESSFUL_COMPLETION = "00000";
    WARNING = "01000";
    PROTOCOL_VIOLATION = "08P01";
    CONNECTION_FAILURE = "08006";
    FEATURE_NOT_SUPPORTED = "0A000";
    CARDINALITY_VIOLATION = "21000";
    STRING_DATA_RIGHT_TRUNCATION = "22001";
    NUMERIC_VALUE_OUT_OF_RANGE = "22003";
    NULL_VALUE_NOT_ALLOWED = "22004";
    INVALID_DATETIME_FORMAT = "22007";
    DATETIME_FIELD_OVERFLOW = "22008";
    INVALID_TIME_ZONE_DISPLACEMENT_VALUE = "22009";
    SUBSTRING_ERROR = "22011";
    DIVISION_BY_ZERO = "22012";
    INTERVAL_FIELD_OVERFLOW = "22015";
    SEQUENCE_GENERATOR_LIMIT_EXCEEDED = "2200H";
    INVALID_ARGUMENT_FOR_LOG = "2201E";
    INVALID_ARGUMENT_FOR_POWER_FUNCTION = "2201F";
    INVALID_ROW_COUNT_IN_LIMIT_CLAUSE = "2201W";
    INVALID_ROW_COUNT_IN_RESULT_OFFSET_CLAUSE = "2201X";
    INVALID_REGULAR_EXPRESSION = "2201B";
    CHARACTER_NOT_IN_REPERTOIRE = "22021";
    INVALID_PARAMETER_VALUE = "22023";
    INVALID_ESCAPE_SEQUENCE = "22025";
    ARRAY_SUBSCRIPT_ERROR = "2202E";
    INVALID_TEXT_REPRESENTATION = "22P02";
    INVALID_BINARY_REPRESENTATION = "22P03";
    BAD_COPY_FILE_FORMAT = "22P04";
    UNTRANSLATABLE_CHARACTER = "22P05";
    INTEGRITY_CONSTRAINT_VIOLATION = "23000";
    NOT_NULL_VIOLATION = "23502";
    FOREIGN_KEY_VIOLATION = "23503";
    UNIQUE_VIOLATION = "23505";
    CHECK_VIOLATION = "23514";
    INVALID_CURSOR_STATE = "24000";
    ACTIVE_SQL_TRANSACTION = "25001";
    READ_ONLY_SQL_TRANSACTION = "25006";
    NO_ACTIVE_SQL_TRANSACTION = "25P01";
    IN_FAILED_SQL_TRANSACTION = "25P02";
    INVALID_SQL_STATEMENT_NAME = "26000";
    TRIGGERED_DATA_CHANGE_VIOLATION = "27000";
    INVALID_AUTHORIZATION_SPECIFICATION = "28000";
    INVALID_PASSWORD = "28P01";
    DEPENDENT_OBJECTS_STILL_EXIST = "2BP01";
    INVALID_CURSOR_NAME = "34000";
    INVALID_SAVEPOINT_SPECIFICATION = "3B001";
    INVALID_CATALOG_NAME = "3D000";
    INVALID_SCHEMA_NAME = "3F000";
    SERIALIZATION_FAILURE = "40001";
    DEADLOCK_DETECTED = "40P01";
    GENERATED_ALWAYS = "428C9";
    SYNTAX_ERROR = "42601";
    INSUFFICIENT_PRIVILEGE = "42501";
    CANNOT_COERCE = "42846";
    GROUPING_ERROR = "42803";
    WINDOWING_ERROR = "42P20";
    INVALID_RECURSION = "42P19";
    INVALID_FOREIGN_KEY = "42830";
    INVALID_NAME = "42602";
    NAME_TOO_LONG = "42622";
    RESERVED_NAME = "42939";
    DATATYPE_MISMATCH = "42804";
    INDETERMINATE_DATATYPE = "42P18";
    WRONG_OBJECT_TYPE = "42809";
    UNDEFINED_COLUMN = "42703";
    UNDEFINED_FUNCTION = "42883";
    UNDEFINED_TABLE = "42P01";
    UNDEFINED_PARAMETER = "42P02";
    UNDEFINED_OBJECT = "42704";
    DUPLICATE_COLUMN = "42701";
    DUPLICATE_CURSOR = "42P03";
    DUPLICATE_DATABASE = "42P04";
    DUPLICATE_FUNCTION = "42723";
    DUPLICATE_PREPARED_STATEMENT = "42P05";
    DUPLICATE_SCHEMA = "42P06";
    DUPLICATE_TABLE = "42P07";
    DUPLICATE_ALIAS = "42712";
    DUPLICATE_OBJECT = "42710";
    AMBIGUOUS_COLUMN = "42702";
    AMBIGUOUS_FUNCTION = "42725";
    AMBIGUOUS_PARAMETER = "42P08";
    INVALID_COLUMN_REFERENCE = "42P10";
    INVALID_TABLE_DEFINITION = "42P16";
    INVALID_OBJECT_DEFINITION = "42P17";
    DISK_FULL = "53100";
    OUT_OF_MEMORY = "53200";
    TOO_MANY_CONNECTIONS = "53300";
    PROGRAM_LIMIT_EXCEEDED = "54000";
    STATEMENT_TOO_COMPLEX = "54001";
    TOO_MANY_COLUMNS = "54011";
    TOO_MANY_ARGUMENTS = "54023";
    OBJECT_NOT_IN_PREREQUISITE_STATE = "55000";
    OBJECT_IN_USE = "55006";
    CANT_CHANGE_RUNTIME_PARAM = "55P02";
    LOCK_NOT_AVAILABLE = "55P03";
    QUERY_CANCELED = "57014";
    ADMIN_SHUTDOWN = "57P01";
    CRASH_SHUTDOWN = "57P02";
    CANNOT_CONNECT_NOW = "57P03";
    IDLE_IN_TRANSACTION_SESSION_TIMEOUT = "25P03";
    SYSTEM_ERROR = "58000";
    IO_ERROR = "58030";
    UNDEFINED_FILE = "58P01";
    CONFIG_FILE_ERROR = "F0000";
    INTERNAL_ERROR = "XX000";
    DATA_CORRUPTED = "XX001";
    INDEX_CORRUPTED = "XX002";
}

/// How bad it is: an ERROR ends the statement (and fails the transaction), a FATAL the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Severity {
    Notice,
    Warning,
    #[default]
    Error,
    Fatal,
}

impl Severity {
    pub const fn as_str(self) -> &'static str {
        match self {
            Severity::Notice => "NOTICE",
            Severity::Warning => "WARNING",
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
        }
    }
}

/// The names of what an error is about, as the protocol carries them.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct ErrorObject {
    pub schema: Option<String>,
    pub table: Option<String>,
    pub column: Option<String>,
    pub data_type: Option<String>,
    pub constraint: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ErrorBody {
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    context: Option<String>,
    position: Option<u32>,
    object: ErrorObject,
}

/// An error, warning or notice for the client. Boxed inside, so `Result`s stay small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlError {
    pub severity: Severity,
    pub state: State,
    body: Box<ErrorBody>,
}

impl SqlError {
    pub fn new(state: State, message: impl Into<String>) -> Self {
        SqlError {
            severity: Severity::Error,
            state,
            body: Box::new(ErrorBody {
                message: message.into(),
                detail: None,
                hint: None,
                context: None,
                position: None,
                object: ErrorObject::default(),
            }),
        }
    }

    /// What is not implemented, by name: `0A000`.
    pub fn unsupported(what: impl fmt::Display) -> Self {
        SqlError::new(State::FEATURE_NOT_SUPPORTED, format!("{what} is not supported"))
    }

    /// A broken invariant of ours, told instead of panicking.
    pub fn internal(what: impl Into<String>) -> Self {
        SqlError::new(State::INTERNAL_ERROR, what)
    }

    pub fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.body.detail = Some(detail.into());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.body.hint = Some(hint.into());
        self
    }

    pub fn context(mut self, context: impl Into<String>) -> Self {
        self.body.context = Some(context.into());
        self
    }

    /// Position in the statement, 1-based, in characters. Keeps one that is already set.
    pub fn at(mut self, position: u32) -> Self {
        self.body.position.get_or_insert(position);
        self
    }

    pub fn object(mut self, fill: impl FnOnce(&mut ErrorObject)) -> Self {
        fill(&mut self.body.object);
        self
    }

    pub fn message(&self) -> &str {
        &self.body.message
    }
    pub fn get_detail(&self) -> Option<&str> {
        self.body.detail.as_deref()
    }
    pub fn get_hint(&self) -> Option<&str> {
        self.body.hint.as_deref()
    }
    pub fn get_context(&self) -> Option<&str> {
        self.body.context.as_deref()
    }
    pub fn get_position(&self) -> Option<u32> {
        self.body.position
    }
    pub fn get_object(&self) -> &ErrorObject {
        &self.body.object
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:  {}", self.severity.as_str(), self.body.message)
    }
}

impl std::error::Error for SqlError {}

/// The one mapping from storage errors to what a client sees.
impl From<StorageError> for SqlError {
    fn from(e: StorageError) -> Self {
        let message = e.to_string();
        match e {
            StorageError::DiskFull { .. } => {
                SqlError::new(State::DISK_FULL, message).hint("Check free disk space.")
            }
            StorageError::Resource { hint, .. } => {
                SqlError::new(State::OUT_OF_MEMORY, message).hint(hint)
            }
            StorageError::Io { .. } => SqlError::new(State::IO_ERROR, message),
            StorageError::Poisoned { .. } => SqlError::new(State::IO_ERROR, message)
                .detail("Nothing is written and no commit is accepted since then.")
                .hint("Restart the server: it recovers everything that was acknowledged."),
            StorageError::Corrupt { .. } => SqlError::new(State::DATA_CORRUPTED, message),
            StorageError::Deadlock { detail } => SqlError::new(State::DEADLOCK_DETECTED, message)
                .detail(detail)
                .hint("See server log for query details."),
            StorageError::LockTimeout => SqlError::new(State::LOCK_NOT_AVAILABLE, message),
            StorageError::Canceled => SqlError::new(State::QUERY_CANCELED, message),
            StorageError::Serialization { .. } => {
                SqlError::new(State::SERIALIZATION_FAILURE, message)
            }
            StorageError::ReadWriteDependencies { reason } => {
                SqlError::new(State::SERIALIZATION_FAILURE, message)
                    .detail(format!("Reason code: {reason}"))
                    .hint("The transaction might succeed if retried.")
            }
            StorageError::DataDirectory { .. } => SqlError::new(State::CONFIG_FILE_ERROR, message),
            StorageError::Limit { .. } => SqlError::new(State::PROGRAM_LIMIT_EXCEEDED, message),
            StorageError::Prerequisite { .. } => {
                SqlError::new(State::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            }
            _ => SqlError::new(State::INTERNAL_ERROR, message),
        }
    }
}

pub type Result<T, E = SqlError> = std::result::Result<T, E>;
