//! A tokenizer file's normalizer, step by step and within bounds: steps hold texts that the file chose, and a few of them
//! in a row can make gigabytes of one word. A step that would is refused before it runs.

use crate::{Failure, Kind, Outcome};
use serde_json::Value;
use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper};

/// How much longer than its text a normalized text may be; the strongest real one (NFKC) has 11.
const MAX_GROWTH: usize = 16;
const ALWAYS_ALLOWED_BYTES: usize = 4096;
pub(crate) const MAX_STEPS: usize = 32;

enum Growth {
    /// A rule of Unicode: no more than MAX_GROWTH by itself.
    Fixed,
    Adds(usize),
    /// Bytes of the text that is looked for, and of the one in its place.
    Replaces(String, usize),
    /// The same for a pattern, which may match nothing at all.
    ReplacesPattern(usize),
    Charsmap(tokenizers::normalizers::Precompiled),
}

struct Step {
    rule: NormalizerWrapper,
    growth: Growth,
}

#[derive(Clone)]
pub(crate) struct BoundedNormalizer {
    steps: Arc<Vec<Step>>,
}

impl BoundedNormalizer {
    pub fn new(rules: Option<&NormalizerWrapper>) -> Outcome<BoundedNormalizer> {
        let mut steps = Vec::new();
        if let Some(rules) = rules {
            flatten(rules, &mut steps)?;
        }
        Ok(BoundedNormalizer { steps: Arc::new(steps) })
    }
}

fn flatten(rule: &NormalizerWrapper, steps: &mut Vec<Step>) -> Outcome<()> {
    if let NormalizerWrapper::Sequence(sequence) = rule {
        return sequence.as_ref().iter().try_for_each(|part| flatten(part, steps));
    }
    if steps.len() == MAX_STEPS {
        return Err(Failure::new(Kind::Limit, format!("tokenizer.json: normalizer: more than {MAX_STEPS} steps")));
    }
    let growth = match rule {
        NormalizerWrapper::Prepend(prepend) => Growth::Adds(prepend.prepend.len()),
        NormalizerWrapper::Precompiled(map) => Growth::Charsmap(map.clone()),
        NormalizerWrapper::Replace(replace) => {
            let described = serde_json::to_value(replace).unwrap_or(Value::Null);
            let pattern = &described["pattern"];
            if pattern["String"] == "" || pattern["Regex"] == "" {
                let message = "tokenizer.json: normalizer: Replace: the pattern is empty";
                return Err(Failure::new(Kind::Input, message));
            }
            match pattern["String"].as_str() {
                Some(text) => Growth::Replaces(text.to_string(), replace.content.len()),
                None => Growth::ReplacesPattern(replace.content.len()),
            }
        }
        _ => Growth::Fixed,
    };
    steps.push(Step { rule: rule.clone(), growth });
    Ok(())
}

impl Step {
    /// Bytes that the step makes of the text, at most.
    fn bytes_of(&self, text: &str) -> tokenizers::Result<usize> {
        Ok(match &self.growth {
            Growth::Fixed => text.len(),
            Growth::Adds(bytes) => text.len() + bytes,
            Growth::Replaces(from, to) => {
                let count = text.matches(from.as_str()).count();
                text.len() - count * from.len() + count.saturating_mul(*to)
            }
            Growth::ReplacesPattern(to) => text.len() + (text.len() + 1).saturating_mul(*to),
            // Its tables come from the file, so looking one up may run out of them.
            Growth::Charsmap(map) => catch_unwind(AssertUnwindSafe(|| map.normalize_string(text).len()))
                .map_err(|_| "tokenizer.json: normalizer: Precompiled: the charsmap is broken")?,
        })
    }
}

impl BoundedNormalizer {
    fn run(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        let most = text.get().len().saturating_mul(MAX_GROWTH) + ALWAYS_ALLOWED_BYTES;
        for step in self.steps.iter() {
            if step.bytes_of(text.get())? <= most {
                // The library loses its place in the text after some patterns that match nothing.
                catch_unwind(AssertUnwindSafe(|| step.rule.normalize(text)))
                    .map_err(|_| "tokenizer.json: normalizer: a step that cannot be applied to this text")??;
                if text.get().len() <= most {
                    continue;
                }
            }
            return Err(format!("tokenizer.json: normalizer: makes a text more than {MAX_GROWTH} times as long").into());
        }
        Ok(())
    }
}

thread_local! {
    static FAILURE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The library drops errors of a normalizer while it encodes. The last one on this thread since the last call.
pub(crate) fn take_failure() -> Option<String> {
    FAILURE.take()
}

impl Normalizer for BoundedNormalizer {
    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        let result = self.run(text);
        if let Err(error) = &result {
            FAILURE.set(Some(error.to_string()));
        }
        result
    }
}
