//! A model's chat templates, compiled once, set up like the reference renderer's Jinja environment.

use crate::json::Json;
use crate::python;
use crate::strftime;
use crate::{builtins, guards, limits, rewrite, tags};
use crate::{input, shown, Failure, Kind, Outcome};
use minijinja::value::{Kwargs, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State};
use std::cell::{Cell, RefCell};

/// Templates live in model files, so all of this is bounded.
const MAX_SOURCE_BYTES: usize = 256 << 10; // of all templates of a model together
const MAX_OUTPUT_BYTES: usize = limits::MAX_TEXT_BYTES;
/// One unit per instruction or 64 bytes handled: a long chat costs some thousands, two million are about 0.1 s
/// and pay for 128 MB of texts and lists.
const FUEL: u64 = 2_000_000;
/// A source of that size could nest values two hundred thousand deep; this much stack still prints and frees them.
const STACK_BYTES: usize = 256 << 20;
const COMPILE_STACK_BYTES: usize = 1 << 30; // address space; only what recursion touches becomes memory
/// A block costs one level, a macro call four.
const RECURSION: usize = 200;

pub(crate) struct Template {
    environment: Environment<'static>,
    names: Vec<String>,
    sources: Vec<String>,
    /// Variables of every render that the context does not set: texts of special tokens.
    pub globals: Vec<(String, Json)>,
}

/// What the template's functions need to know about the render in progress on this thread.
struct Progress {
    now: i64,
    /// Characters put around generation blocks; None while nobody asks for their places.
    marks: Option<(char, char)>,
    blocks: usize,
}

thread_local! {
    static PROGRESS: RefCell<Progress> = const { RefCell::new(Progress { now: 0, marks: None, blocks: 0 }) };
}

/// The message of `raise_exception`, kept apart from the engine's own errors.
#[derive(Debug)]
struct Raised(String);
impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for Raised {}

fn raise_exception(state: &State, message: Value) -> Result<Value, Error> {
    let text = shown(&limits::with_text(state, &message)?.to_string());
    Err(Error::new(ErrorKind::InvalidOperation, text.clone()).with_source(Raised(text)))
}

/// The longest directive, two characters, makes 24.
fn strftime_now(state: &State, format: &str) -> Result<String, Error> {
    limits::allow(state, "strftime_now", 12 * format.len() as u64)?;
    Ok(strftime::strftime(PROGRESS.with_borrow(|progress| progress.now), format))
}

/// Methods of Python's strings, lists and dicts. They read their arguments whole, which the engine does not count.
fn python_method(state: &mut State, value: &Value, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    for read in std::iter::once(value).chain(arguments) {
        if let Some(text) = read.as_str() {
            state.consume_fuel(text.len() as u64 / 16)?;
        }
    }
    builtins::check_method(state, value, method, arguments)?;
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, arguments)
}

fn generation_block(state: &mut State, arguments: Kwargs) -> Result<String, Error> {
    let caller: Value = arguments.get("caller")?;
    let body = caller.call(state, &[])?.to_string();
    limits::allow(state, "a generation block", body.len() as u64)?;
    PROGRESS.with_borrow_mut(|progress| {
        progress.blocks += 1;
        Ok(match progress.marks {
            Some((open, close)) => format!("{open}{body}{close}"),
            None => body,
        })
    })
}

fn on_a_stack_of<T: Send>(bytes: usize, work: impl FnOnce() -> Outcome<T> + Send) -> Outcome<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("template".into()).stack_size(bytes);
        let thread = thread
            .spawn_scoped(scope, work)
            .map_err(|e| Failure::new(Kind::Limit, format!("chat template: no thread to work on: {e}")))?;
        thread.join().unwrap_or_else(|_| Err(Failure::new(Kind::Panic, "the template engine panicked")))
    })
}

impl Template {
    /// `templates`: (name, source). One template alone may have any name. The parser recurses along chains of operators
    /// as well as into brackets, so a source at the size limit needs a stack to match.
    pub fn compile(templates: Vec<(String, String)>, globals: Vec<(String, Json)>) -> Outcome<Template> {
        on_a_stack_of(COMPILE_STACK_BYTES, move || Self::compile_here(templates, globals))
    }

    fn compile_here(templates: Vec<(String, String)>, globals: Vec<(String, Json)>) -> Outcome<Template> {
        if templates.is_empty() {
            return input("chat template: the model has none");
        }
        let mut environment = Environment::new();
        let syntax = minijinja::syntax::SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        let syntax = syntax.map_err(|e| Failure::new(Kind::Panic, e.to_string()))?;
        environment.set_syntax(syntax.clone());
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_unknown_method_callback(python_method);
        environment.set_formatter(|out, state, value| {
            if limits::is_container(value) {
                limits::charge(state, value)?;
            } else if let Some(text) = python::text(value) {
                return out.write_str(&text).map_err(Error::from);
            }
            minijinja::escape_formatter(out, state, value)
        });
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(RECURSION);
        builtins::add_to(&mut environment);
        environment.add_filter("tojson", python::tojson);
        environment.add_filter("string", python::string);
        environment.add_filter("e", python::escape);
        environment.add_filter("escape", python::escape);
        environment.add_filter("wordcount", minijinja_contrib::filters::wordcount);
        environment.add_filter("filesizeformat", minijinja_contrib::filters::filesizeformat);
        environment.add_function("joiner", minijinja_contrib::globals::joiner);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment.add_function(rewrite::GENERATION_FUNCTION, generation_block);
        let (mut names, mut sources) = (Vec::new(), Vec::new());
        let bytes: usize = templates.iter().map(|(_, source)| source.len()).sum();
        if bytes > MAX_SOURCE_BYTES {
            let message = format!("chat_template: {bytes} bytes of source, the limit is {MAX_SOURCE_BYTES}");
            return Err(Failure::new(Kind::Limit, message));
        }
        for (name, source) in templates {
            if names.contains(&name) {
                return input(format!("chat template '{}' is there twice", shown(&name)));
            }
            let rewritten = rewrite::rewrite(&source);
            tags::check(&rewritten, &syntax)?;
            let guarded = guards::guard(&rewritten, &syntax);
            let compiled = environment.add_template_owned(name.clone(), guarded);
            compiled.map_err(|e| Failure::new(Kind::Input, format!("chat template: {}", describe(&e))))?;
            names.push(name);
            sources.push(source);
        }
        Ok(Template { environment, names, sources, globals })
    }

    /// The index of the template to use: the named one; else with tools "tool_use", else "default", else the only one.
    pub fn choose(&self, name: &str, with_tools: bool) -> Outcome<usize> {
        let find = |wanted: &str| self.names.iter().position(|n| n == wanted);
        let choice = if !name.is_empty() {
            find(name)
        } else if self.names.len() == 1 {
            Some(0)
        } else {
            with_tools.then(|| find("tool_use")).flatten().or_else(|| find("default"))
        };
        let wanted = if name.is_empty() { "default" } else { name };
        match choice {
            Some(index) => Ok(index),
            None => input(format!(
                "chat template '{}' is not in the model, which has: {}",
                shown(wanted),
                shown(&self.names.join(", "))
            )),
        }
    }

    pub fn source(&self, index: usize) -> &str {
        &self.sources[index]
    }

    /// Renders; the second value counts the generation blocks seen. Each one's text lies between the two `marks`.
    pub fn render(
        &self,
        index: usize,
        context: Value,
        now: i64,
        marks: Option<(char, char)>,
    ) -> Outcome<(String, usize)> {
        on_a_stack_of(STACK_BYTES, move || self.render_here(index, context, now, marks))
    }

    fn render_here(
        &self,
        index: usize,
        context: Value,
        now: i64,
        marks: Option<(char, char)>,
    ) -> Outcome<(String, usize)> {
        PROGRESS.set(Progress { now, marks, blocks: 0 });
        let template = self.environment.get_template(&self.names[index]);
        let template = template.map_err(|e| Failure::new(Kind::Panic, e.to_string()))?;
        let full = Cell::new(false);
        let mut out = Vec::new();
        let writer = Bounded { out: &mut out, full: &full };
        match template.render_captured_to(context, writer) {
            Ok(_) => {}
            Err(_) if full.get() => {
                let message = format!("chat template: more than {MAX_OUTPUT_BYTES} bytes of output");
                return Err(Failure::new(Kind::Limit, message));
            }
            Err(error) => return Err(failure(&error)),
        }
        let text = String::from_utf8(out).map_err(|e| Failure::new(Kind::Panic, e.to_string()))?;
        Ok((text, PROGRESS.with_borrow(|progress| progress.blocks)))
    }
}

struct Bounded<'a> {
    out: &'a mut Vec<u8>,
    full: &'a Cell<bool>,
}

impl std::io::Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.out.len() + bytes.len() > MAX_OUTPUT_BYTES {
            self.full.set(true);
            return Err(std::io::Error::other("output limit"));
        }
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn failure(error: &Error) -> Failure {
    let mut limited = false;
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(raised) = current.downcast_ref::<Raised>() {
            return Failure::new(Kind::Refused, raised.0.clone());
        }
        limited |= current.downcast_ref::<limits::TooMuch>().is_some();
        if current.downcast_ref::<Error>().is_some_and(|e| e.kind() == ErrorKind::OutOfFuel) {
            return Failure::new(Kind::Limit, "chat template: too much work, the render was stopped");
        }
        cause = current.source();
    }
    let text = describe(error);
    let kind = if limited || text.contains("recursion limit exceeded") { Kind::Limit } else { Kind::Input };
    Failure::new(kind, format!("chat template: {text}"))
}

/// "what (line 12)", of the innermost error.
fn describe(error: &Error) -> String {
    let mut inner = error;
    while let Some(next) = std::error::Error::source(inner).and_then(|e| e.downcast_ref::<Error>()) {
        inner = next;
    }
    let what = inner.detail().map_or_else(|| inner.kind().to_string(), |detail| format!("{}: {detail}", inner.kind()));
    let what = shown(&what);
    match inner.line().or_else(|| error.line()) {
        Some(line) => format!("{what} (line {line})"),
        None => what,
    }
}
