//! Which function or operator a call means: PostgreSQL's overload resolution.
//!
//! 1. Candidates: functions of that name that take this many arguments, counting optional ones
//!    and the repetition of a variadic last one.
//! 2. An exact match wins (an unknown operand of an operator counts as the other's type).
//! 3. Otherwise drop candidates whose arguments cannot be converted implicitly.
//! 4. Keep those with the most exact matches; then those with the most preferred types.
//! 5. Unknown arguments: prefer the string category if any candidate takes it there, else the one
//!    category that all take; keep those of that category, of its preferred type if one does.
//! 6. If all known arguments have one type, suppose the unknown ones have it too.
//!
//! Polymorphic types are then made concrete, and arguments converted.

use super::bound::*;
use super::coerce::{self, array_element, can_coerce, category, is_polymorphic, preferred};
use super::scope::{Binder, null};
use crate::error::{Result, SqlError, State};
use crate::functions::{self, Builtin, CastContext, Operator};
use crate::types::{self, Oid, TypeRef};
use smallvec::SmallVec;

type Types = SmallVec<[Oid; 4]>;

/// A way to call a function with so many arguments.
#[derive(Clone, Debug)]
struct Candidate {
    function: &'static Builtin,
    args: Types,
    /// Arguments from this one on are gathered into the variadic array.
    gathered: Option<usize>,
}

/// What a function call turned out to be.
pub(crate) enum Found {
    Function(Resolved),
    /// A one-argument call under a type's name.
    Cast(Oid),
}

/// A function with concrete argument types.
pub(crate) struct Resolved {
    pub function: &'static Builtin,
    /// Of the arguments as given (before a variadic array is formed).
    pub args: Vec<Oid>,
    pub gathered: Option<usize>,
    pub result: Oid,
    /// Concrete types of output columns, where the function has them.
    pub columns: Vec<Oid>,
}

fn is_array_family(oid: Oid) -> bool {
    matches!(oid, Oid::ANYARRAY | Oid::ANYCOMPATIBLEARRAY)
}

fn is_compatible_family(oid: Oid) -> bool {
    matches!(oid, Oid::ANYCOMPATIBLE | Oid::ANYCOMPATIBLEARRAY)
        || (is_polymorphic(oid)
            && !matches!(oid, Oid::ANYELEMENT | Oid::ANYARRAY | Oid::ANYNONARRAY))
}

/// What the polymorphic types of one call stand for.
#[derive(Default, Clone, Copy, Debug)]
struct Polymorphs {
    element: Option<Oid>,
    /// The actual type given for anyarray, which may be a vector type.
    array: Option<Oid>,
    compatible: Option<Oid>,
}

/// Makes polymorphic declarations concrete for these argument types; an error text when they do
/// not fit together.
fn polymorphs(b: &Binder<'_>, actual: &[Oid], declared: &[Oid]) -> Result<Polymorphs, SqlError> {
    let mismatch = |m: String| SqlError::new(State::DATATYPE_MISMATCH, m);
    let mut p = Polymorphs::default();
    let mut compatible: Vec<(Oid, i32)> = Vec::new();
    for (actual, declared) in actual.iter().copied().zip(declared.iter().copied()) {
        if !is_polymorphic(declared) || actual == Oid::UNKNOWN {
            continue;
        }
        let element = if is_array_family(declared) {
            match array_element(actual) {
                Some(e) => e,
                None => {
                    return Err(mismatch(format!(
                        "argument declared {} is not an array but type {}",
                        types::format_type(declared, -1),
                        b.type_text(actual)
                    )));
                }
            }
        } else {
            actual
        };
        if is_compatible_family(declared) {
            compatible.push((element, -1));
            continue;
        }
        if declared == Oid::ANYARRAY {
            p.array.get_or_insert(actual);
        }
        match p.element {
            None => p.element = Some(element),
            Some(e) if e == element => {}
            Some(e) => {
                let (name, a, b) = if is_array_family(declared) {
                    ("anyarray", array_or(e), actual)
                } else {
                    ("anyelement", e, actual)
                };
                let (a, b) = (types::format_type(a, -1), types::format_type(b, -1));
                return Err(mismatch(format!("arguments declared \"{name}\" are not all alike"))
                    .detail(format!("{a} versus {b}")));
            }
        }
    }
    if !compatible.is_empty() {
        p.compatible = b.common_type(&compatible, Some("arguments of anycompatible family"))?;
    }
    Ok(p)
}

fn array_or(element: Oid) -> Oid {
    let array = types::array_type(element);
    if array.is_valid() { array } else { element }
}

impl Polymorphs {
    fn concrete(&self, declared: Oid) -> Option<Oid> {
        if !is_polymorphic(declared) {
            return Some(declared);
        }
        if is_compatible_family(declared) {
            // Nothing but literals of unknown type: text.
            let base = self.compatible.unwrap_or(Oid::TEXT);
            return Some(if is_array_family(declared) { types::array_type(base) } else { base });
        }
        if declared == Oid::ANYARRAY {
            let array = self.array.or_else(|| self.element.map(types::array_type))?;
            return array.is_valid().then_some(array);
        }
        self.element
    }
}

impl Binder<'_> {
    fn fits(&self, actual: &[Oid], candidate: &Candidate) -> bool {
        let pairs = || actual.iter().copied().zip(candidate.args.iter().copied());
        pairs().all(|(a, d)| can_coerce(a, d, CastContext::Implicit))
            && (!candidate.args.iter().any(|d| is_polymorphic(*d)) || {
                match polymorphs(self, actual, &candidate.args) {
                    Err(_) => false,
                    Ok(p) => pairs().all(|(a, d)| match p.concrete(d) {
                        Some(t) if is_polymorphic(d) => {
                            can_coerce(a, t, CastContext::Implicit)
                                && (d != Oid::ANYNONARRAY || array_element(t).is_none())
                        }
                        Some(_) => true,
                        // All unknown: anyelement of unknown literals is text.
                        None => a == Oid::UNKNOWN,
                    }),
                }
            })
    }

    /// Steps 3 to 6: the candidate that these argument types mean. None: none, or several.
    fn choose(&self, actual: &[Oid], all: Vec<Candidate>) -> Selection {
        let mut left: Vec<Candidate> = all.into_iter().filter(|c| self.fits(actual, c)).collect();
        match left.len() {
            0 => return Selection::None,
            1 => return Selection::One(left.remove(0)),
            _ => {}
        }
        let unknowns = actual.iter().filter(|t| **t == Oid::UNKNOWN).count();
        keep_best(&mut left, |c| exact_matches(actual, &c.args));
        if left.len() > 1 {
            keep_best(&mut left, |c| preferred_matches(actual, &c.args));
        }
        if left.len() > 1 && unknowns > 0 {
            narrow_unknowns(actual, &mut left);
        }
        if left.len() > 1
            && unknowns > 0
            && let Some(same) = single_known(actual)
        {
            let as_known: Types =
                actual.iter().map(|t| if *t == Oid::UNKNOWN { same } else { *t }).collect();
            let mut fitting = left.iter().filter(|c| self.fits(&as_known, c));
            if let (Some(one), None) = (fitting.next(), fitting.next()) {
                return Selection::One(one.clone());
            }
        }
        match left.len() {
            1 => Selection::One(left.remove(0)),
            _ => Selection::Several,
        }
    }

    /// Finds the function for a call. `variadic`: the last argument was marked VARIADIC.
    pub(crate) fn find_function(
        &self,
        name: &str,
        actual: &[Oid],
        variadic: bool,
        location: i32,
    ) -> Result<Option<Found>> {
        let candidates = gather(name, actual.len(), variadic);
        let exact = candidates.iter().find(|c| c.args.as_slice() == actual).cloned();
        let chosen = match exact {
            Some(c) => c,
            None => {
                if let [arg] = actual
                    && !variadic
                    && let Some(target) = self.cast_by_name(name, *arg)?
                {
                    return Ok(Some(Found::Cast(target)));
                }
                match self.choose(actual, candidates) {
                    Selection::One(c) => c,
                    Selection::None => return Ok(None),
                    Selection::Several => {
                        let call = self.call_text(name, actual);
                        let message = format!("function {call} is not unique");
                        return Err(self.error(State::AMBIGUOUS_FUNCTION, message, location).hint(
                            "Could not choose a best candidate function. You might need to add \
                             explicit type casts.",
                        ));
                    }
                }
            }
        };
        let resolved = self.make_concrete(chosen, actual).map_err(|e| self.at(e, location))?;
        Ok(Some(Found::Function(resolved)))
    }

    /// `text(x)`: a cast in a function's clothes, where it costs nothing or goes through text.
    fn cast_by_name(&self, name: &str, source: Oid) -> Result<Option<Oid>> {
        let Some(target) = self.base_type(&[name])? else { return Ok(None) };
        if source == Oid::UNKNOWN {
            return Ok(Some(target));
        }
        let path = coerce::pathway(source, target, CastContext::Explicit);
        let plain = match path {
            Some(coerce::Pathway::Relabel) => true,
            Some(coerce::Pathway::ViaText) => {
                // Only what the type's own casts do, not composite or array output.
                category(source) != 'C' || category(target) != 'S'
            }
            _ => false,
        };
        Ok(plain.then_some(target))
    }

    fn make_concrete(&self, chosen: Candidate, actual: &[Oid]) -> Result<Resolved> {
        let function = chosen.function;
        let p = polymorphs(self, actual, &chosen.args)?;
        let undetermined = || {
            SqlError::new(
                State::DATATYPE_MISMATCH,
                "could not determine polymorphic type because input has type unknown",
            )
        };
        let mut args = Vec::with_capacity(actual.len());
        for declared in &chosen.args {
            args.push(p.concrete(*declared).ok_or_else(undetermined)?);
        }
        let result = p.concrete(function.result).ok_or_else(undetermined)?;
        let mut columns = Vec::with_capacity(function.columns.len());
        for (_, oid) in function.columns {
            columns.push(p.concrete(*oid).ok_or_else(undetermined)?);
        }
        Ok(Resolved { function, args, gathered: chosen.gathered, result, columns })
    }

    /// Names and concrete types of a function's output columns.
    pub(crate) fn function_columns(
        &self,
        function: &'static Builtin,
        actual: &[Oid],
    ) -> Vec<(String, TypeRef)> {
        let p = polymorphs(self, actual, function.args).unwrap_or_default();
        let column = |(name, oid): &(&str, Oid)| {
            ((*name).to_owned(), TypeRef::plain(p.concrete(*oid).unwrap_or(Oid::TEXT)))
        };
        function.columns.iter().map(column).collect()
    }

    /// Converts a call's arguments to the resolved types and completes them.
    pub(crate) fn function_args(
        &mut self,
        found: &Resolved,
        given: Vec<Expr>,
        locations: &[i32],
    ) -> Result<Vec<Expr>> {
        let mut args = Vec::with_capacity(found.function.args.len());
        for (i, e) in given.into_iter().enumerate() {
            let location = locations.get(i).copied().unwrap_or(-1);
            let target = TypeRef::plain(found.args.get(i).copied().unwrap_or(Oid::ANY));
            args.push(self.coerce(e, target, CastContext::Implicit, location)?);
        }
        if let Some(from) = found.gathered {
            let items = args.split_off(from);
            let element = found.args.get(from).copied().unwrap_or(Oid::TEXT);
            let ty = TypeRef::plain(types::array_type(element));
            args.push(Expr::Array { items, element, nested: false, ty });
        }
        let spread = found.gathered.is_none() && is_any_variadic(found.function);
        while args.len() < found.function.args.len() && !spread {
            args.push(null(found.function.args[args.len()]));
        }
        Ok(args)
    }

    pub(crate) fn call_text(&self, name: &str, args: &[Oid]) -> String {
        let args: Vec<String> = args.iter().map(|t| self.type_text(*t)).collect();
        format!("{name}({})", args.join(", "))
    }

    /// The operator for these operands; `left` None: a prefix operator.
    pub(crate) fn find_operator(
        &self,
        name: &str,
        left: Option<Oid>,
        right: Oid,
        location: i32,
    ) -> Result<(&'static Operator, Resolved)> {
        let all = functions::operators(name);
        let actual: Types = left.into_iter().chain([right]).collect();
        if let Some(op) = exact_operator(all, left, right) {
            return self.operator_of(op, &actual, location);
        }
        let candidates: Vec<Candidate> = all
            .iter()
            .filter(|op| op.left.is_some() == left.is_some())
            .map(|op| Candidate {
                function: op.function,
                args: op.left.into_iter().chain([op.right]).collect(),
                gathered: None,
            })
            .collect();
        let chosen = match self.choose(&actual, candidates) {
            Selection::One(c) => c,
            Selection::None => return Err(self.no_operator(name, left, right, location)),
            Selection::Several => {
                let text = self.operator_text(name, left, right);
                let message = format!("operator is not unique: {text}");
                return Err(self.error(State::AMBIGUOUS_FUNCTION, message, location).hint(
                    "Could not choose a best candidate operator. You might need to add explicit \
                     type casts.",
                ));
            }
        };
        let found = all
            .iter()
            .find(|op| op.left.into_iter().chain([op.right]).eq(chosen.args.iter().copied()));
        match found {
            Some(op) => self.operator_of(op, &actual, location),
            None => Err(self.no_operator(name, left, right, location)),
        }
    }

    fn operator_of(
        &self,
        op: &'static Operator,
        actual: &[Oid],
        location: i32,
    ) -> Result<(&'static Operator, Resolved)> {
        let candidate = Candidate {
            function: op.function,
            args: op.left.into_iter().chain([op.right]).collect(),
            gathered: None,
        };
        let mut resolved =
            self.make_concrete(candidate, actual).map_err(|e| self.at(e, location))?;
        if !is_polymorphic(op.result) {
            resolved.result = op.result;
        }
        Ok((op, resolved))
    }

    fn operator_text(&self, name: &str, left: Option<Oid>, right: Oid) -> String {
        match left {
            Some(l) => format!("{} {name} {}", self.type_text(l), self.type_text(right)),
            None => format!("{name} {}", self.type_text(right)),
        }
    }

    pub(crate) fn no_operator(
        &self,
        name: &str,
        left: Option<Oid>,
        right: Oid,
        location: i32,
    ) -> SqlError {
        let message = format!("operator does not exist: {}", self.operator_text(name, left, right));
        let hint = if left.is_some() {
            "No operator matches the given name and argument types. You might need to add \
             explicit type casts."
        } else {
            "No operator matches the given name and argument type. You might need to add an \
             explicit type cast."
        };
        self.error(State::UNDEFINED_FUNCTION, message, location).hint(hint)
    }

    /// `left op right` with both sides converted.
    pub(crate) fn operator_call(
        &mut self,
        name: &str,
        left: Option<(Expr, i32)>,
        right: (Expr, i32),
        location: i32,
    ) -> Result<Expr> {
        let left_type = left.as_ref().map(|l| l.0.ty().oid);
        let (_, found) = self.find_operator(name, left_type, right.0.ty().oid, location)?;
        let mut exprs = Vec::with_capacity(2);
        let mut locations: SmallVec<[i32; 2]> = SmallVec::new();
        for (e, l) in left.into_iter().chain([right]) {
            exprs.push(e);
            locations.push(l);
        }
        let args = self.function_args(&found, exprs, &locations)?;
        let ty = TypeRef::plain(found.result);
        if found.function.is_set() {
            return Ok(Expr::SetCall { function: found.function, args, ty });
        }
        Ok(Expr::Call { function: found.function, args, ty })
    }
}

enum Selection {
    None,
    One(Candidate),
    Several,
}

/// VARIADIC "any": arguments are passed one by one.
fn is_any_variadic(f: &Builtin) -> bool {
    f.variadic && f.args.last() == Some(&Oid::ANY)
}

fn gather(name: &str, given: usize, variadic: bool) -> Vec<Candidate> {
    let mut out: Vec<Candidate> = Vec::new();
    for function in functions::lookup(name).iter().copied() {
        let declared = function.args;
        let least = declared.len().saturating_sub(usize::from(function.optional));
        let plain = given <= declared.len() && given >= least;
        if plain && (!function.variadic || variadic) {
            let args = declared[..given].iter().copied().collect();
            out.push(Candidate { function, args, gathered: None });
        }
        if !function.variadic || variadic || given + 1 < declared.len() {
            continue;
        }
        let fixed = declared.len() - 1;
        let any = is_any_variadic(function);
        if given == fixed && !any {
            continue;
        }
        let element = if any {
            Oid::ANY
        } else {
            match declared[fixed] {
                Oid::ANYARRAY => Oid::ANYELEMENT,
                Oid::ANYCOMPATIBLEARRAY => Oid::ANYCOMPATIBLE,
                array => array_element(array).unwrap_or(Oid::ANY),
            }
        };
        let mut args: Types = declared[..fixed].iter().copied().collect();
        args.resize(given, element);
        let gathered = (!any).then_some(fixed);
        out.push(Candidate { function, args, gathered });
    }
    prefer_plain(&mut out);
    out
}

/// Of two with the same argument types, the one that need not gather (or default) wins.
fn prefer_plain(list: &mut Vec<Candidate>) {
    let mut i = 0;
    while i < list.len() {
        let shadowed = list.iter().enumerate().any(|(j, c)| {
            let simpler = (c.gathered.is_some(), c.function.args.len());
            let own = (list[i].gathered.is_some(), list[i].function.args.len());
            j != i && c.args == list[i].args && simpler < own
        });
        if shadowed {
            list.remove(i);
        } else {
            i += 1;
        }
    }
}

fn exact_operator(
    all: &[&'static Operator],
    left: Option<Oid>,
    right: Oid,
) -> Option<&'static Operator> {
    let find = |l: Option<Oid>, r: Oid| all.iter().find(|o| o.left == l && o.right == r).copied();
    match left {
        Some(Oid::UNKNOWN) if right != Oid::UNKNOWN => {
            find(Some(right), right).or_else(|| find(left, right))
        }
        Some(l) if right == Oid::UNKNOWN && l != Oid::UNKNOWN => {
            find(left, l).or_else(|| find(left, right))
        }
        _ => find(left, right),
    }
}

fn exact_matches(actual: &[Oid], args: &[Oid]) -> usize {
    actual.iter().zip(args).filter(|(a, d)| **a != Oid::UNKNOWN && a == d).count()
}

fn preferred_matches(actual: &[Oid], args: &[Oid]) -> usize {
    let good = |(a, d): &(&Oid, &Oid)| {
        **a != Oid::UNKNOWN && (a == d || (category(**a) == category(**d) && preferred(**d)))
    };
    actual.iter().zip(args).filter(good).count()
}

fn keep_best(list: &mut Vec<Candidate>, score: impl Fn(&Candidate) -> usize) {
    let best = list.iter().map(&score).max().unwrap_or(0);
    list.retain(|c| score(c) == best);
}

/// Step 5.
fn narrow_unknowns(actual: &[Oid], list: &mut Vec<Candidate>) {
    let mut wanted: SmallVec<[Option<(char, bool)>; 4]> = SmallVec::new();
    for (i, t) in actual.iter().enumerate() {
        if *t != Oid::UNKNOWN {
            wanted.push(None);
            continue;
        }
        let mut slot = '\0';
        let mut has_preferred = false;
        let mut conflict = false;
        for c in list.iter() {
            let (cat, pref) = (category(c.args[i]), preferred(c.args[i]));
            if slot == '\0' {
                (slot, has_preferred) = (cat, pref);
            } else if cat == slot {
                has_preferred |= pref;
            } else if cat == 'S' {
                (slot, has_preferred) = (cat, pref);
            } else if slot != 'S' {
                conflict = true;
            }
        }
        // Candidates of several categories, none of them strings: this argument decides nothing,
        // and neither does any other.
        if conflict && slot != 'S' {
            return;
        }
        wanted.push(Some((slot, has_preferred)));
    }
    let fits = |c: &Candidate| {
        wanted.iter().zip(&c.args).all(|(w, d)| match w {
            None => true,
            Some((cat, pref)) => category(*d) == *cat && (!pref || preferred(*d)),
        })
    };
    if list.iter().any(fits) {
        list.retain(fits);
    }
}

/// The one type that all known arguments have.
fn single_known(actual: &[Oid]) -> Option<Oid> {
    let mut known = actual.iter().filter(|t| **t != Oid::UNKNOWN);
    let first = *known.next()?;
    known.all(|t| *t == first).then_some(first)
}
