//! Spec files: what sessions do, and in which orders.
//!
//! ```text
//! # A comment: what the spec is about.
//! levels read committed, repeatable read      once a level; {level} stands for it
//! setup
//!   create table t (id int primary key, v int);
//! teardown
//!   drop table t;
//! session a
//!   begin: begin isolation level {level}
//!   read:  select v from t where id = 1
//!   end:   commit
//! session b
//!   ...
//! final select * from t order by id           what is looked at in the end
//! order a.begin b.begin a.read ...            any number of these, any steps; without, every
//!                                             interleaving
//! check serializable                          against all serial orders; only anomalies are shown
//! ```
//!
//! A word at the beginning of a line opens a section, indented lines belong to it. A step is one
//! simple query message, so it may be several statements.

/// One step of a session.
pub struct Step {
    pub name: String,
    pub sql: String,
}

pub struct Actor {
    pub name: String,
    pub steps: Vec<Step>,
}

/// How a spec is judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Check {
    /// Every order is shown in full.
    Show,
    /// Orders whose outcome no serial order has are shown; the others are counted.
    Serializable,
}

pub struct Spec {
    pub levels: Vec<String>,
    pub setup: String,
    pub teardown: String,
    pub actors: Vec<Actor>,
    pub last: Option<String>,
    /// Steps as (actor, step) numbers; empty: every interleaving.
    pub orders: Vec<Vec<(usize, usize)>>,
    pub check: Check,
}

enum Section {
    None,
    Setup,
    Teardown,
    Session,
}

impl Spec {
    /// Reads a spec; a line that cannot be is an error that names it.
    pub fn parse(text: &str) -> Result<Spec, String> {
        let mut spec = Spec {
            levels: Vec::new(),
            setup: String::new(),
            teardown: String::new(),
            actors: Vec::new(),
            last: None,
            orders: Vec::new(),
            check: Check::Show,
        };
        let mut section = Section::None;
        for (at, line) in text.lines().enumerate() {
            let bad = |what: &str| format!("line {}: {what}: {line}", at + 1);
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with(' ') {
                match section {
                    Section::None => return Err(bad("an indented line before a section")),
                    Section::Setup => add_line(&mut spec.setup, line),
                    Section::Teardown => add_line(&mut spec.teardown, line),
                    Section::Session => spec.add_step(line).map_err(|e| bad(&e))?,
                }
                continue;
            }
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            section = spec.open_section(word, rest.trim()).map_err(|e| bad(&e))?;
        }
        match spec.actors.is_empty() {
            true => Err("no session".to_owned()),
            false => Ok(spec),
        }
    }

    fn open_section(&mut self, word: &str, rest: &str) -> Result<Section, String> {
        match word {
            "setup" => return Ok(Section::Setup),
            "teardown" => return Ok(Section::Teardown),
            "session" if !rest.is_empty() => {
                self.actors.push(Actor { name: rest.to_owned(), steps: Vec::new() });
                return Ok(Section::Session);
            }
            "levels" => self.levels = rest.split(',').map(|l| l.trim().to_owned()).collect(),
            "final" => self.last = Some(rest.to_owned()),
            "check" if rest == "serializable" => self.check = Check::Serializable,
            "order" => {
                let order = rest.split_whitespace().map(|name| self.step_of(name));
                let order = order.collect::<Result<Vec<_>, _>>()?;
                self.orders.push(order);
            }
            _ => return Err("not a section".to_owned()),
        }
        Ok(Section::None)
    }

    /// A new step, or a further line of the last one.
    fn add_step(&mut self, line: &str) -> Result<(), String> {
        let Some(actor) = self.actors.last_mut() else { return Err("no session".to_owned()) };
        let named = line.split_once(':').filter(|(name, _)| {
            !name.trim().is_empty() && name.trim().chars().all(|c| c.is_alphanumeric() || c == '_')
        });
        match (named, actor.steps.last_mut()) {
            (Some((name, sql)), _) if !sql.starts_with(':') => {
                let (name, sql) = (name.trim().to_owned(), sql.trim().to_owned());
                actor.steps.push(Step { name, sql });
            }
            (_, Some(step)) => {
                step.sql.push(' ');
                step.sql.push_str(line.trim());
            }
            _ => return Err("a step is `name: statements`".to_owned()),
        }
        Ok(())
    }

    /// `session.step` as numbers.
    fn step_of(&self, name: &str) -> Result<(usize, usize), String> {
        let (actor, step) = name.split_once('.').ok_or("an order's item is session.step")?;
        let at = self.actors.iter().position(|a| a.name == actor);
        let at = at.ok_or_else(|| format!("no session {actor}"))?;
        let step = self.actors[at].steps.iter().position(|s| s.name == step);
        Ok((at, step.ok_or_else(|| format!("no step {name}"))?))
    }
}

fn add_line(text: &mut String, line: &str) {
    text.push_str(line.trim());
    text.push('\n');
}
