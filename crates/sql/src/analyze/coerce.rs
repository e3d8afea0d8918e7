//! Type conversion: which casts exist, when they apply by themselves, and the nodes that do them.
//!
//! | from -> to                       | how                                              |
//! |----------------------------------|--------------------------------------------------|
//! | unknown literal -> anything      | the type's input function, now (errors have its position) |
//! | unknown parameter -> anything    | the parameter gets that type                     |
//! | pg_cast entry                    | its function, relabelling, or through text       |
//! | array -> array                   | element by element                               |
//! | row -> record                    | relabelling                                      |
//! | anything -> string category      | through text, in assignments                     |
//! | string category -> anything      | through text, explicit casts only                |

use super::bound::*;
use super::scope::Binder;
use super::statement::ParamMode;
use crate::error::{Result, SqlError, State};
use crate::functions::{self, Builtin, CastContext, CastHow};
use crate::types::{self, Datum, Oid, TypeRef};

/// How a value of one type becomes one of another.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pathway {
    Relabel,
    Function(&'static Builtin),
    ViaText,
    /// Element types.
    Array(Oid, Oid),
}

pub(crate) fn category(oid: Oid) -> char {
    types::info(oid).map_or('C', |t| t.category)
}

pub(crate) fn preferred(oid: Oid) -> bool {
    types::info(oid).is_some_and(|t| t.preferred)
}

pub(crate) fn is_polymorphic(oid: Oid) -> bool {
    matches!(
        oid,
        Oid::ANYELEMENT
            | Oid::ANYARRAY
            | Oid::ANYNONARRAY
            | Oid::ANYCOMPATIBLE
            | Oid::ANYCOMPATIBLEARRAY
    ) || types::info(oid).is_some_and(|t| t.name == "anycompatiblenonarray")
}

fn is_composite(oid: Oid) -> bool {
    types::info(oid).is_none() && oid.is_valid()
}

/// The pathway from `source` to `target` that `context` permits.
pub(crate) fn pathway(source: Oid, target: Oid, context: CastContext) -> Option<Pathway> {
    if source == target {
        return Some(Pathway::Relabel);
    }
    if let Some(cast) = functions::find_cast(source, target) {
        if context < cast.context {
            return None;
        }
        return Some(match cast.how {
            CastHow::Relabel => Pathway::Relabel,
            CastHow::InOut => Pathway::ViaText,
            CastHow::Function(f) => Pathway::Function(f),
        });
    }
    if let (Some(from), Some(to)) = (array_element(source), array_element(target))
        && target != Oid::OIDVECTOR
        && target != Oid::INT2VECTOR
    {
        return match pathway(from, to, context)? {
            Pathway::Relabel => Some(Pathway::Relabel),
            _ => Some(Pathway::Array(from, to)),
        };
    }
    if context >= CastContext::Assignment && category(target) == 'S' {
        return Some(Pathway::ViaText);
    }
    if context >= CastContext::Explicit && category(source) == 'S' {
        return Some(Pathway::ViaText);
    }
    None
}

/// The element type of what subscripts like an array; a name is no array.
pub(crate) fn array_element(oid: Oid) -> Option<Oid> {
    types::element_type(oid)
}

/// Whether a value of `source` can stand where `target` is wanted.
pub(crate) fn can_coerce(source: Oid, target: Oid, context: CastContext) -> bool {
    if source == target || target == Oid::ANY || is_polymorphic(target) || source == Oid::UNKNOWN {
        return true;
    }
    if pathway(source, target, context).is_some() {
        return true;
    }
    match target {
        Oid::RECORD => is_composite(source),
        Oid::RECORD_ARRAY => false,
        // A record constructor may become a row type; what is in it is checked later.
        _ => source == Oid::RECORD && is_composite(target),
    }
}

impl Binder<'_> {
    /// Converts `e` to `target`, modifier included; None: there is no such conversion.
    pub(crate) fn try_coerce(
        &mut self,
        e: Expr,
        target: TypeRef,
        context: CastContext,
        location: i32,
    ) -> Result<Option<Expr>> {
        if !can_coerce(e.ty().oid, target.oid, context) {
            return Ok(None);
        }
        let e = self.coerce(e, target, context, location)?;
        Ok(Some(self.coerce_typmod(e, target, context, location)?))
    }

    /// Converts `e` to `target`'s type (no modifier), where `can_coerce` said that it can be done.
    pub(crate) fn coerce(
        &mut self,
        e: Expr,
        target: TypeRef,
        context: CastContext,
        location: i32,
    ) -> Result<Expr> {
        let source = e.ty().oid;
        if source == target.oid || target.oid == Oid::ANY || is_polymorphic(target.oid) {
            return Ok(e);
        }
        if source == Oid::UNKNOWN {
            return self.coerce_unknown(e, target, context, location);
        }
        if let Expr::Collate { arg, collation } = e {
            let arg = Box::new(self.coerce(*arg, target, context, location)?);
            return Ok(match types::info(target.oid) {
                Some(t) if t.collatable() => Expr::Collate { arg, collation },
                _ => *arg,
            });
        }
        let ty = TypeRef::plain(target.oid);
        if target.oid == Oid::RECORD && is_composite(source) {
            return Ok(Expr::Relabel { arg: Box::new(e), ty });
        }
        if source == Oid::RECORD && is_composite(target.oid) {
            return self.record_to_row(e, target.oid, context, location);
        }
        let Some(path) = pathway(source, target.oid, context) else {
            return Err(self.cannot_cast(source, target.oid, location));
        };
        let arg = Box::new(e);
        Ok(match path {
            Pathway::Relabel => Expr::Relabel { arg, ty },
            Pathway::ViaText => Expr::CoerceViaText { arg, ty },
            Pathway::Function(function) => cast_call(function, *arg, target, context),
            Pathway::Array(from, to) => {
                let operand = Expr::CaseOperand { ty: TypeRef::plain(from) };
                let to = TypeRef::plain(to);
                let element = Box::new(self.coerce(operand, to, context, location)?);
                Expr::CoerceArray { arg, element, ty }
            }
        })
    }

    pub(crate) fn cannot_cast(&self, source: Oid, target: Oid, location: i32) -> SqlError {
        let (from, to) = (self.type_text(source), self.type_text(target));
        let message = format!("cannot cast type {from} to {to}");
        self.error(State::CANNOT_COERCE, message, location)
    }

    /// Literals and parameters whose type was open until now.
    fn coerce_unknown(
        &mut self,
        e: Expr,
        target: TypeRef,
        context: CastContext,
        location: i32,
    ) -> Result<Expr> {
        match e {
            Expr::Const { value: Datum::Null, .. } => {
                Ok(Expr::Const { value: Datum::Null, ty: TypeRef::plain(target.oid) })
            }
            Expr::Const { value: Datum::Text(text), .. } => {
                // An interval's fields decide how its text is read.
                let typmod = if target.oid == Oid::INTERVAL { target.typmod } else { -1 };
                let ty = TypeRef::new(target.oid, typmod);
                let value = self.literal(ty, &text, location)?;
                Ok(Expr::Const { value, ty })
            }
            Expr::Param { index, .. } => self.type_parameter(index, target.oid, location),
            Expr::Collate { arg, collation } => {
                let arg = Box::new(self.coerce(*arg, target, context, location)?);
                Ok(Expr::Collate { arg, collation })
            }
            // A sub-select's or CASE's column that nothing gave a type: it holds text.
            e => {
                let ty = TypeRef::plain(target.oid);
                Ok(Expr::CoerceViaText { arg: Box::new(e), ty })
            }
        }
    }

    /// A literal's text as a value of `ty`.
    pub(crate) fn literal(&self, ty: TypeRef, text: &str, location: i32) -> Result<Datum> {
        types::text_in(ty, text, self.cx.functions).map_err(|e| self.at(e, location))
    }

    fn type_parameter(&mut self, index: u16, oid: Oid, location: i32) -> Result<Expr> {
        let slot = usize::from(index) - 1;
        let known = self.params.types.get(slot).copied().unwrap_or_default();
        let ty = TypeRef::plain(oid);
        if self.params.mode == ParamMode::Variable {
            if !known.is_valid() || known == Oid::UNKNOWN {
                self.params.types[slot] = oid;
            } else if known != oid {
                let (a, b) = (self.type_text(known), self.type_text(oid));
                let message = format!("inconsistent types deduced for parameter ${index}");
                return Err(self
                    .error(State::AMBIGUOUS_PARAMETER, message, location)
                    .detail(format!("{a} versus {b}")));
            }
        } else if known == Oid::UNKNOWN {
            // A fixed parameter of type unknown carries text.
            let arg = Box::new(Expr::Param { index, ty: TypeRef::plain(Oid::UNKNOWN) });
            return Ok(Expr::CoerceViaText { arg, ty });
        }
        Ok(Expr::Param { index, ty })
    }

    /// `ROW(...)` as a table's row type, field by field.
    fn record_to_row(
        &mut self,
        e: Expr,
        row_type: Oid,
        context: CastContext,
        location: i32,
    ) -> Result<Expr> {
        let cannot = |b: &Self| b.cannot_cast(Oid::RECORD, row_type, location);
        let Some(table) = self.table_of_row_type(row_type).cloned() else {
            return Err(cannot(self));
        };
        let Expr::Row { items, .. } = e else { return Err(cannot(self)) };
        let wanted: Vec<TypeRef> = table.live_columns().map(|c| c.ty).collect();
        if items.len() != wanted.len() {
            let detail = if items.len() < wanted.len() {
                "Input has too few columns."
            } else {
                "Input has too many columns."
            };
            return Err(cannot(self).detail(detail));
        }
        let mut fields = Vec::with_capacity(items.len());
        for (i, (item, ty)) in items.into_iter().zip(wanted).enumerate() {
            let from = item.ty().oid;
            let Some(field) = self.try_coerce(item, ty, context, location)? else {
                let (from, to) = (self.type_text(from), self.type_text(ty.oid));
                return Err(cannot(self)
                    .detail(format!("Cannot cast type {from} to {to} in column {}.", i + 1)));
            };
            fields.push(field);
        }
        Ok(Expr::Row { items: fields, ty: TypeRef::plain(row_type) })
    }

    /// Applies a type modifier to a value that already has the type.
    pub(crate) fn coerce_typmod(
        &mut self,
        e: Expr,
        target: TypeRef,
        context: CastContext,
        location: i32,
    ) -> Result<Expr> {
        if target.typmod < 0 || e.ty() == target || e.ty().oid != target.oid {
            return Ok(e);
        }
        let explicit = context == CastContext::Explicit;
        let Some(info) = types::info(target.oid) else { return Ok(e) };
        if info.is_array() {
            let inner = TypeRef::new(info.element, target.typmod);
            let operand = Expr::CaseOperand { ty: TypeRef::plain(info.element) };
            let element = self.coerce_typmod(operand, inner, context, location)?;
            if matches!(element, Expr::CaseOperand { .. }) {
                return Ok(e);
            }
            return Ok(Expr::CoerceArray {
                arg: Box::new(e),
                element: Box::new(element),
                ty: target,
            });
        }
        if info.typmod_in.is_empty() {
            return Ok(e);
        }
        if let Expr::Const { value, .. } = &e
            && let Ok(value) = types::apply_typmod(value.clone(), target, explicit)
        {
            return Ok(Expr::Const { value, ty: target });
        }
        Ok(Expr::ApplyTypmod { arg: Box::new(e), ty: target, explicit })
    }

    /// Converts a condition to boolean.
    pub(crate) fn coerce_boolean(&mut self, e: Expr, place: &str, location: i32) -> Result<Expr> {
        let from = e.ty().oid;
        let target = TypeRef::plain(Oid::BOOL);
        let coerced = self.try_coerce(e, target, CastContext::Assignment, location)?;
        let coerced = coerced.ok_or_else(|| {
            let from = self.type_text(from);
            let message = format!("argument of {place} must be type boolean, not type {from}");
            self.error(State::DATATYPE_MISMATCH, message, location)
        })?;
        if has_set(&coerced) {
            let message = format!("argument of {place} must not return a set");
            return Err(self.error(State::DATATYPE_MISMATCH, message, location));
        }
        Ok(coerced)
    }

    /// Converts LIMIT, OFFSET and the like to bigint.
    pub(crate) fn coerce_specific(
        &mut self,
        e: Expr,
        oid: Oid,
        place: &str,
        location: i32,
    ) -> Result<Expr> {
        let from = e.ty().oid;
        let coerced = self.try_coerce(e, TypeRef::plain(oid), CastContext::Assignment, location)?;
        coerced.ok_or_else(|| {
            let (from, to) = (self.type_text(from), self.type_text(oid));
            let message = format!("argument of {place} must be type {to}, not type {from}");
            self.error(State::DATATYPE_MISMATCH, message, location)
        })
    }

    /// The type that expressions of a CASE, VALUES column, UNION column, ... share.
    ///
    /// `context` names the construct in the error; with None a mismatch yields None.
    pub(crate) fn common_type(
        &self,
        types: &[(Oid, i32)],
        context: Option<&str>,
    ) -> Result<Option<Oid>> {
        let Some(((first, _), rest)) = types.split_first() else { return Ok(Some(Oid::TEXT)) };
        if *first != Oid::UNKNOWN && rest.iter().all(|t| t.0 == *first) {
            return Ok(Some(*first));
        }
        let mut chosen = *first;
        for (next, location) in rest {
            let (next, location) = (*next, *location);
            if next == Oid::UNKNOWN || next == chosen {
                continue;
            }
            if chosen == Oid::UNKNOWN {
                chosen = next;
            } else if category(chosen) != category(next) {
                let Some(context) = context else { return Ok(None) };
                let (a, b) = (self.type_text(chosen), self.type_text(next));
                let message = format!("{context} types {a} and {b} cannot be matched");
                return Err(self.error(State::DATATYPE_MISMATCH, message, location));
            } else if !preferred(chosen)
                && can_coerce(chosen, next, CastContext::Implicit)
                && !can_coerce(next, chosen, CastContext::Implicit)
            {
                chosen = next;
            }
        }
        Ok(Some(if chosen == Oid::UNKNOWN { Oid::TEXT } else { chosen }))
    }

    /// Converts one of the expressions to the type that `common_type` chose.
    pub(crate) fn to_common(
        &mut self,
        e: Expr,
        oid: Oid,
        context: &str,
        location: i32,
    ) -> Result<Expr> {
        let from = e.ty().oid;
        if from == oid {
            return Ok(e);
        }
        if !can_coerce(from, oid, CastContext::Implicit) {
            let (from, to) = (self.type_text(from), self.type_text(oid));
            let message = format!("{context} could not convert type {from} to {to}");
            return Err(self.error(State::CANNOT_COERCE, message, location));
        }
        self.coerce(e, TypeRef::plain(oid), CastContext::Implicit, location)
    }

    /// The modifier that all of them share, else none.
    pub(crate) fn common_typmod<'e>(oid: Oid, mut of: impl Iterator<Item = &'e Expr>) -> i32 {
        let Some(first) = of.next().map(Expr::ty) else { return -1 };
        let same = first.oid == oid && of.all(|e| e.ty() == first);
        if same { first.typmod } else { -1 }
    }
}

/// A cast function's call; some take the modifier and whether the cast is explicit as well.
fn cast_call(function: &'static Builtin, arg: Expr, target: TypeRef, context: CastContext) -> Expr {
    let mut args = vec![arg];
    if function.args.len() >= 2 {
        args.push(Expr::Const { value: Datum::Int4(target.typmod), ty: TypeRef::plain(Oid::INT4) });
    }
    if function.args.len() >= 3 {
        args.push(Expr::Const {
            value: Datum::Bool(context == CastContext::Explicit),
            ty: TypeRef::plain(Oid::BOOL),
        });
    }
    Expr::Call { function, args, ty: TypeRef::plain(target.oid) }
}

fn has_set(e: &Expr) -> bool {
    super::walk::has_set_call(e)
}
