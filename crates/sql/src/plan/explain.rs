//! EXPLAIN: a plan as text, laid out as PostgreSQL lays it out, or as JSON.
//!
//! Operators that PostgreSQL does not have as nodes of their own (projection, conditions above a
//! join) are shown as properties of the node below.

use super::*;
use crate::exec::build::{Execution, NodeStats};
use std::fmt::Write as _;

#[derive(Clone, Copy, Debug)]
pub struct ExplainOptions {
    pub analyze: bool,
    pub costs: bool,
    pub timing: bool,
    pub summary: bool,
    pub buffers: bool,
    pub json: bool,
}

/// Numbers of the run, for EXPLAIN ANALYZE.
#[derive(Clone, Copy, Default)]
pub struct Summary {
    pub planning_ms: f64,
    pub execution_ms: Option<f64>,
    /// Pages found in memory, and read.
    pub buffers: Option<(u64, u64)>,
}

/// A node as it is shown.
struct Shown<'p> {
    plan: &'p Plan,
    /// Conditions and limits of transparent operators above it.
    filters: Vec<(&'static str, String)>,
    /// The plan whose measurements count: the uppermost of the operators shown as one.
    measured: &'p Plan,
}

/// The lines of a plan.
pub fn explain(
    plan: &StatementPlan,
    execution: Option<&Execution>,
    options: ExplainOptions,
    summary: Summary,
) -> Vec<String> {
    let e = Explainer { statement: plan, execution, options };
    if options.json {
        return e.json(summary);
    }
    let mut out = Vec::new();
    e.node(&plan.root, 0, "", &mut out);
    if let Some((hit, read)) = summary.buffers.filter(|_| options.buffers) {
        out.push(format!("Buffers: shared hit={hit} read={read}"));
    }
    if options.summary {
        out.push(format!("Planning Time: {:.3} ms", summary.planning_ms));
        if let Some(ms) = summary.execution_ms {
            out.push(format!("Execution Time: {ms:.3} ms"));
        }
    }
    out
}

struct Explainer<'p> {
    statement: &'p StatementPlan,
    execution: Option<&'p Execution>,
    options: ExplainOptions,
}

fn text_of(e: &PExpr) -> String {
    e.text.as_deref().unwrap_or("?").to_owned()
}

/// Conditions are shown in parentheses.
fn parenthesised(text: &str) -> String {
    let mut depth = 0i32;
    let wrapped = text.starts_with('(')
        && text.ends_with(')')
        && text.char_indices().all(|(i, c)| {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            depth > 0 || i + 1 == text.len()
        });
    if wrapped { text.to_owned() } else { format!("({text})") }
}

fn condition(e: &PExpr) -> String {
    parenthesised(&text_of(e))
}

/// Looks through operators that are not shown.
fn shown(plan: &Plan) -> Shown<'_> {
    let mut filters = Vec::new();
    let mut at = plan;
    loop {
        match &at.op {
            Op::Project { child, .. } => at = child,
            Op::Filter { child, filter, once: false } => {
                filters.push(("Filter", condition(filter)));
                at = child;
            }
            Op::SubqueryScan { child, .. } if matches!(child.op, Op::Append { .. }) => at = child,
            _ => return Shown { plan: at, filters, measured: plan },
        }
    }
}

impl Explainer<'_> {
    fn node(&self, plan: &Plan, depth: usize, label: &str, out: &mut Vec<String>) {
        let s = shown(plan);
        let (name, mut details) = self.describe(s.plan);
        details.extend(s.filters.iter().map(|(k, v)| ((*k).to_owned(), v.clone())));
        let mut line = match depth {
            0 => String::new(),
            d => format!("{:indent$}->  ", "", indent = (d - 1) * 6 + 2),
        };
        let _ = write!(line, "{label}{name}");
        self.numbers(&s, &mut line);
        out.push(line);
        let indent = if depth == 0 { 2 } else { (depth - 1) * 6 + 8 };
        for (key, value) in details {
            out.push(format!("{:indent$}{key}: {value}", ""));
        }
        if let Some(note) = self.removed(&s) {
            out.push(format!("{:indent$}{note}", ""));
        }
        self.beside(s.plan, depth, indent, out);
        for child in s.plan.op.children() {
            self.node(child, depth + 1, "", out);
        }
    }

    fn numbers(&self, s: &Shown<'_>, line: &mut String) {
        if self.options.costs {
            let (c, p) = (s.measured.cost, s.measured);
            let silent = match &s.plan.op {
                Op::Modify { modify, .. } => modify.returning.is_none(),
                _ => false,
            };
            let rows = if silent { 0.0 } else { p.rows };
            let _ = write!(
                line,
                "  (cost={:.2}..{:.2} rows={rows:.0} width={})",
                c.startup,
                c.total,
                s.plan.width.max(p.width)
            );
        }
        if !self.options.analyze {
            return;
        }
        let Some(stats) = self.stats(s.measured) else { return };
        if stats.loops == 0 {
            line.push_str(" (never executed)");
            return;
        }
        let n = stats.loops as f64;
        let ms = |d: std::time::Duration| d.as_secs_f64() * 1000.0 / n;
        let rows = stats.rows as f64 / n;
        let _ = if self.options.timing {
            write!(
                line,
                " (actual time={:.3}..{:.3} rows={rows:.0} loops={})",
                ms(stats.startup),
                ms(stats.total),
                stats.loops
            )
        } else {
            write!(line, " (actual rows={rows:.0} loops={})", stats.loops)
        };
    }

    fn stats(&self, plan: &Plan) -> Option<NodeStats> {
        let execution = self.execution?;
        let mut at = plan;
        // A sub-select's scan is not an operator; the one below it was measured.
        while let Op::SubqueryScan { child, .. } = &at.op {
            at = child;
        }
        let index = execution.measured.get(&(std::ptr::from_ref(at) as usize))?;
        execution.stats.get(*index).copied()
    }

    fn removed(&self, s: &Shown<'_>) -> Option<String> {
        if !self.options.analyze || s.filters.is_empty() {
            return None;
        }
        let (above, below) = (self.stats(s.measured)?, self.stats(s.plan)?);
        let n = above.loops.max(1);
        Some(format!("Rows Removed by Filter: {}", below.rows.saturating_sub(above.rows) / n))
    }

    /// Sub-plans and CTEs, shown at the root.
    fn beside(&self, plan: &Plan, depth: usize, indent: usize, out: &mut Vec<String>) {
        if !std::ptr::eq(plan, shown(&self.statement.root).plan) {
            return;
        }
        for cte in &self.statement.ctes {
            out.push(format!("{:indent$}CTE {}", "", cte.name));
            self.node(&cte.plan, depth + 1, "", out);
        }
        for (i, sub) in self.statement.subplans.iter().enumerate() {
            let kind = if sub.correlated { "SubPlan" } else { "InitPlan" };
            let mut label = format!("{:indent$}{kind} {}", "", i + 1);
            if kind == "InitPlan" {
                let _ = write!(label, " (returns ${i})");
            }
            out.push(label);
            self.node(&sub.plan, depth + 1, "", out);
        }
    }

    /// An operator's name, and what is shown below it.
    fn describe(&self, plan: &Plan) -> (String, Details) {
        let mut details = Details::new();
        let name = describe_scan(&plan.op, &mut details)
            .or_else(|| describe_join(&plan.op, &mut details))
            .unwrap_or_else(|| describe_other(&plan.op, &mut details));
        (name, details)
    }

    // ---- JSON ----

    fn json(&self, summary: Summary) -> Vec<String> {
        let mut out = vec!["[".to_owned(), "  {".to_owned()];
        out.push("    \"Plan\": {".to_owned());
        self.json_node(&self.statement.root, 6, &mut out);
        let mut tail = Vec::new();
        if self.options.summary {
            tail.push(format!("    \"Planning Time\": {:.3}", summary.planning_ms));
            if let Some(ms) = summary.execution_ms {
                tail.push(format!("    \"Execution Time\": {ms:.3}"));
            }
        }
        out.push(format!("    }}{}", if tail.is_empty() { "" } else { "," }));
        let last = tail.len();
        for (i, line) in tail.into_iter().enumerate() {
            out.push(if i + 1 < last { line + "," } else { line });
        }
        out.push("  }".to_owned());
        out.push("]".to_owned());
        out
    }

    fn json_node(&self, plan: &Plan, indent: usize, out: &mut Vec<String>) {
        let s = shown(plan);
        let (name, mut details) = self.describe(s.plan);
        details.extend(s.filters.iter().map(|(k, v)| ((*k).to_owned(), v.clone())));
        let kind = name.split(" on ").next().unwrap_or(&name);
        let kind = kind.split(" using ").next().unwrap_or(kind);
        let mut fields = vec![("Node Type".to_owned(), quote(kind))];
        if let Some(scan) = scanned(s.plan) {
            fields.push(("Relation Name".to_owned(), quote(&scan.table.name)));
            fields.push(("Alias".to_owned(), quote(&scan.alias)));
        }
        if let Op::IndexScan(i) = &s.plan.op {
            fields.push(("Index Name".to_owned(), quote(&i.index.name)));
        }
        if self.options.costs {
            let c = s.measured.cost;
            fields.push(("Startup Cost".to_owned(), format!("{:.2}", c.startup)));
            fields.push(("Total Cost".to_owned(), format!("{:.2}", c.total)));
            fields.push(("Plan Rows".to_owned(), format!("{:.0}", s.measured.rows)));
            fields.push(("Plan Width".to_owned(), s.plan.width.to_string()));
        }
        if self.options.analyze
            && let Some(stats) = self.stats(s.measured)
        {
            let n = stats.loops.max(1) as f64;
            if self.options.timing {
                let ms = |d: std::time::Duration| format!("{:.3}", d.as_secs_f64() * 1000.0 / n);
                fields.push(("Actual Startup Time".to_owned(), ms(stats.startup)));
                fields.push(("Actual Total Time".to_owned(), ms(stats.total)));
            }
            fields.push(("Actual Rows".to_owned(), format!("{:.0}", stats.rows as f64 / n)));
            fields.push(("Actual Loops".to_owned(), stats.loops.to_string()));
        }
        fields.extend(details.into_iter().map(|(k, v)| (k, quote(&v))));
        let children = s.plan.op.children();
        let pad = " ".repeat(indent);
        let last = fields.len();
        for (i, (key, value)) in fields.into_iter().enumerate() {
            let comma = if i + 1 < last || !children.is_empty() { "," } else { "" };
            out.push(format!("{pad}{}: {value}{comma}", quote(&key)));
        }
        if children.is_empty() {
            return;
        }
        out.push(format!("{pad}\"Plans\": ["));
        for (i, child) in children.iter().enumerate() {
            out.push(format!("{pad}  {{"));
            self.json_node(child, indent + 4, out);
            out.push(format!("{pad}  }}{}", if i + 1 < children.len() { "," } else { "" }));
        }
        out.push(format!("{pad}]"));
    }
}

type Details = Vec<(String, String)>;

fn detail(details: &mut Details, key: &str, value: String) {
    details.push((key.to_owned(), value));
}

fn filter_detail(details: &mut Details, key: &str, filter: &Option<PExpr>) {
    if let Some(f) = filter {
        detail(details, key, condition(f));
    }
}

fn describe_scan(op: &Op, details: &mut Details) -> Option<String> {
    Some(match op {
        Op::SeqScan { scan, filter } => {
            filter_detail(details, "Filter", filter);
            format!("Seq Scan on {}", table_name(scan))
        }
        Op::TidScan { scan, cond, filter, .. } => {
            cond.iter().for_each(|c| detail(details, "TID Cond", parenthesised(c)));
            filter_detail(details, "Filter", filter);
            format!("Tid Scan on {}", table_name(scan))
        }
        Op::IndexScan(i) => {
            i.cond.iter().for_each(|c| detail(details, "Index Cond", parenthesised(c)));
            filter_detail(details, "Filter", &i.filter);
            let kind = if i.index_only { "Index Only Scan" } else { "Index Scan" };
            let back = if i.backward { " Backward" } else { "" };
            format!("{kind}{back} using {} on {}", i.index.name, table_name(&i.scan))
        }
        Op::FunctionScan { alias, functions, .. } => match functions.as_slice() {
            // What a sequence looks like from outside.
            [one] if one.function.name == "inkling_sequence" => format!("Seq Scan on {alias}"),
            [one] if one.function.name == alias => format!("Function Scan on {alias}"),
            [one] => format!("Function Scan on {} {alias}", one.function.name),
            _ => format!("Function Scan on {alias}"),
        },
        Op::ValuesScan { alias, .. } => format!("Values Scan on \"{alias}\""),
        Op::CteScan { name, alias, .. } if name == alias => format!("CTE Scan on {name}"),
        Op::CteScan { name, alias, .. } => format!("CTE Scan on {name} {alias}"),
        Op::WorkTableScan { alias, .. } => format!("WorkTable Scan on {alias}"),
        Op::SubqueryScan { alias, .. } => format!("Subquery Scan on {alias}"),
        _ => return None,
    })
}

fn describe_join(op: &Op, details: &mut Details) -> Option<String> {
    Some(match op {
        Op::NestedLoop { kind, filter, .. } => {
            filter_detail(details, "Join Filter", filter);
            match join_name(*kind) {
                "" => "Nested Loop".to_owned(),
                name => format!("Nested Loop{name} Join"),
            }
        }
        Op::HashJoin { kind, cond, filter, .. } => {
            cond.iter().for_each(|c| detail(details, "Hash Cond", parenthesised(c)));
            filter_detail(details, "Join Filter", filter);
            format!("Hash{} Join", join_name(*kind))
        }
        _ => return None,
    })
}

fn describe_other(op: &Op, details: &mut Details) -> String {
    match op {
        Op::Materialize { .. } => "Materialize".to_owned(),
        Op::Filter { filter, .. } => {
            detail(details, "One-Time Filter", condition(filter));
            "Result".to_owned()
        }
        Op::ProjectSet { .. } => "ProjectSet".to_owned(),
        Op::Aggregate { keys, .. } if keys.is_empty() => "Aggregate".to_owned(),
        Op::Aggregate { keys, .. } => {
            let keys: Vec<String> = keys.iter().map(|k| text_of(&k.0)).collect();
            detail(details, "Group Key", keys.join(", "));
            "HashAggregate".to_owned()
        }
        Op::Window { .. } => "WindowAgg".to_owned(),
        Op::Sort { keys, .. } => {
            let keys: Vec<String> = keys.iter().map(sort_key).collect();
            detail(details, "Sort Key", keys.join(", "));
            "Sort".to_owned()
        }
        Op::Limit { .. } => "Limit".to_owned(),
        Op::Unique { texts, .. } => {
            if !texts.is_empty() {
                detail(details, "Group Key", texts.join(", "));
            }
            "HashAggregate".to_owned()
        }
        Op::Append { .. } => "Append".to_owned(),
        Op::SetOp { except, all, .. } => {
            let op = if *except { "Except" } else { "Intersect" };
            format!("HashSetOp {op}{}", if *all { " All" } else { "" })
        }
        Op::RecursiveUnion { .. } => "Recursive Union".to_owned(),
        Op::LockRows { .. } => "LockRows".to_owned(),
        Op::Modify { modify, .. } => {
            if let ModifyAction::Insert { conflict: Some(c), .. } = &modify.action {
                let kind = if c.update.is_some() { "UPDATE" } else { "NOTHING" };
                detail(details, "Conflict Resolution", kind.to_owned());
            }
            let verb = match &modify.action {
                ModifyAction::Insert { .. } => "Insert",
                ModifyAction::Update { .. } => "Update",
                ModifyAction::Delete { .. } => "Delete",
            };
            format!("{verb} on {}", table_name(&modify.scan))
        }
        _ => "Result".to_owned(),
    }
}

fn scanned(plan: &Plan) -> Option<&ScanTable> {
    match &plan.op {
        Op::SeqScan { scan, .. } | Op::TidScan { scan, .. } => Some(scan),
        Op::IndexScan(i) => Some(&i.scan),
        Op::Modify { modify, .. } => Some(&modify.scan),
        _ => None,
    }
}

fn quote(s: &str) -> String {
    let mut out = String::from("\"");
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if (c as u32) < 32 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn table_name(scan: &ScanTable) -> String {
    if scan.alias == scan.table.name {
        scan.table.name.clone()
    } else {
        format!("{} {}", scan.table.name, scan.alias)
    }
}

fn join_name(kind: JoinType) -> &'static str {
    match kind {
        JoinType::Inner => "",
        JoinType::Left => " Left",
        JoinType::Right => " Right",
        JoinType::Full => " Full",
        JoinType::Semi => " Semi",
        JoinType::Anti => " Anti",
    }
}

fn sort_key((e, o): &(PExpr, Order)) -> String {
    let mut text = text_of(e);
    if o.descending {
        text.push_str(" DESC");
    }
    if o.nulls_first != o.descending {
        text.push_str(if o.nulls_first { " NULLS FIRST" } else { " NULLS LAST" });
    }
    text
}
