//! GROUP BY's rule: outside aggregates a grouped query may use only what it groups by.
//!
//! Columns that depend on the grouping by a primary key are allowed and are added to the grouping
//! expressions, where they change no group: so every column that the bound query uses outside
//! aggregates is one of `group_by`, or part of one.

use super::bound::*;
use super::scope::Binder;
use super::walk;
use crate::catalog::ConstraintKind;
use crate::error::{Result, State};

struct Loose {
    var: Var,
    /// Inside a sub-select of the grouped query.
    nested: bool,
}

impl Binder<'_> {
    /// Checks a grouped query whose range table is already in place.
    pub(crate) fn check_grouping(&mut self, q: &mut Query) -> Result<()> {
        let mut loose: Vec<Loose> = Vec::new();
        let mut look = |e: &Expr| collect(e, &q.group_by, &mut loose);
        q.targets.iter().for_each(|t| look(&t.expr));
        q.having.iter().for_each(&mut look);
        q.order_by.iter().for_each(|k| look(&k.expr));
        if let Some(Distinct::On(list)) = &q.distinct {
            list.iter().for_each(look);
        }
        for l in loose {
            let expr = Expr::Var(l.var);
            if q.group_by.contains(&expr) {
                continue;
            }
            if depends_on_key(q, &l.var) {
                q.group_by.push(expr);
                continue;
            }
            return Err(self.ungrouped(q, &l));
        }
        Ok(())
    }

    fn ungrouped(&self, q: &Query, l: &Loose) -> crate::error::SqlError {
        let entry = &q.rtes[usize::from(l.var.rte)];
        let column = match usize::try_from(l.var.col) {
            Ok(i) => entry.columns.get(i).map_or("?", |c| c.name.as_str()),
            Err(_) => super::scope::system_column_name(l.var.col),
        };
        let name = format!("{}.{column}", entry.name);
        let message = if l.nested {
            format!("subquery uses ungrouped column \"{name}\" from outer query")
        } else {
            format!(
                "column \"{name}\" must appear in the GROUP BY clause or be used in an aggregate \
                 function"
            )
        };
        let scope = self.scopes.len() - 1;
        let uses = self.scopes.last().map_or(&[][..], |s| &s.uses);
        let at = uses
            .iter()
            .find(|u| u.scope == scope && u.rte == l.var.rte && u.col == l.var.col)
            .map_or(-1, |u| u.location);
        self.error(State::GROUPING_ERROR, message, at)
    }
}

/// The columns of the query in `e` that no grouping expression and no aggregate covers.
fn collect(e: &Expr, group_by: &[Expr], loose: &mut Vec<Loose>) {
    walk::visit(e, 0, &mut |e, depth| {
        match e {
            Expr::Aggregate(_) if depth == 0 => return false,
            Expr::Var(v) if v.level == depth => {
                let var = Var { level: 0, ..*v };
                if !group_by.contains(&Expr::Var(var)) {
                    loose.push(Loose { var, nested: depth > 0 });
                }
                return false;
            }
            Expr::Const { .. } | Expr::Param { .. } => return false,
            _ => {}
        }
        !(depth == 0 && group_by.contains(e))
    });
}

/// Whether the query groups by the whole primary key of the table that the column is of.
fn depends_on_key(q: &Query, v: &Var) -> bool {
    let Some(entry) = q.rtes.get(usize::from(v.rte)) else { return false };
    let RangeSource::Table(table) = &entry.source else { return false };
    let grouped = |attnum: i16| {
        q.group_by.iter().any(
            |g| matches!(g, Expr::Var(x) if x.level == 0 && x.rte == v.rte && x.col == attnum - 1),
        )
    };
    table.constraints.iter().any(|c| {
        matches!(c.kind, ConstraintKind::Primary { .. })
            && !c.deferrable
            && !c.columns.is_empty()
            && c.columns.iter().all(|a| grouped(*a))
    })
}
