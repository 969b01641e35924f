//! One chat rendered the way the reference library does it: what happens to the messages before the template sees them
//! and to the text afterwards.

use crate::json::Json;
use crate::template::Template;
use crate::{input, Outcome};

/// Put behind the last message's text to find the place again. Its name and its trailing blank are part of the
/// behaviour: templates see it, and a template that trims eats the blank.
const TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

pub(crate) struct Request<'a> {
    /// "" = choose by tools.
    pub template_name: &'a str,
    pub now: i64,
    /// The text ends inside the last message instead of closing it.
    pub continue_final_message: bool,
    pub track_generation: bool,
}

pub(crate) struct Rendered {
    pub text: String,
    /// [begin, end) of generation blocks in code points.
    pub generation: Vec<(u64, u64)>,
}

pub(crate) fn render(template: &Template, context: &str, request: &Request) -> Outcome<Rendered> {
    let Json::Map(mut context) = Json::parse(context)? else {
        return input("template context: not a JSON object");
    };
    let place = |context: &[(String, Json)], key: &str| context.iter().position(|(k, _)| k == key);
    for (key, default) in [
        ("messages", Json::List(Vec::new())),
        ("tools", Json::Null),
        ("documents", Json::Null),
        ("add_generation_prompt", Json::Bool(false)),
    ] {
        if place(&context, key).is_none() {
            context.push((key.to_string(), default));
        }
    }
    for (key, value) in &template.globals {
        if place(&context, key).is_none() {
            context.push((key.clone(), value.clone()));
        }
    }
    let with_tools = place(&context, "tools").is_some_and(|i| context[i].1 != Json::Null);
    let index = template.choose(request.template_name, with_tools)?;
    let messages = place(&context, "messages").map(|i| &mut context[i].1);
    let Some(Json::List(messages)) = messages else {
        return input("messages: not a list");
    };
    prepare(messages)?;
    let final_text = match request.continue_final_message {
        true => Some(mark_final_message(messages, template.source(index))?),
        false => None,
    };
    let context = Json::Map(context).into_value();

    let (mut text, mut generation) = if request.track_generation {
        tracked(template, index, context, request.now)?
    } else {
        (template.render(index, context, request.now, None)?.0, Vec::new())
    };
    if let Some(final_text) = final_text {
        cut_after_final_message(&mut text, &final_text)?;
        let end = text.chars().count() as u64;
        generation.retain(|range| range.0 < end);
        generation.iter_mut().for_each(|range| range.1 = range.1.min(end));
    }
    Ok(Rendered { text, generation })
}

/// Keys without a value are dropped (templates handle a missing key better than null), and reasoning text becomes
/// visible under the two names that templates read.
fn prepare(messages: &mut [Json]) -> Outcome<()> {
    for (index, message) in messages.iter_mut().enumerate() {
        let Json::Map(entries) = message else {
            return input(format!("messages[{index}]: not an object"));
        };
        entries.retain(|(_, value)| *value != Json::Null);
        let reasoning = ["reasoning_content", "thinking", "reasoning"]
            .iter()
            .find_map(|key| entries.iter().find(|(k, _)| k == key).map(|(_, value)| value.clone()));
        if let Some(reasoning) = reasoning {
            if !entries.iter().any(|(key, _)| key == "thinking") {
                entries.insert(0, ("thinking".to_string(), reasoning.clone()));
            }
            match entries.iter_mut().find(|(key, _)| key == "reasoning_content") {
                Some(entry) => entry.1 = reasoning,
                None => entries.push(("reasoning_content".to_string(), reasoning)),
            }
        }
    }
    Ok(())
}

/// Appends the tag to the last message's text and returns that text as it was.
fn mark_final_message(messages: &mut [Json], source: &str) -> Outcome<String> {
    let Some(content) = messages.last_mut().and_then(|message| message.get_mut("content")) else {
        return input("continue_final_message: the last message has no content to continue");
    };
    if !source.contains("content") {
        return input("continue_final_message: the chat template does not read content");
    }
    let text = match content {
        Json::Str(text) => Some(text),
        Json::List(parts) => parts.iter_mut().rev().find_map(|part| match part.get_mut("text") {
            Some(Json::Str(text)) => Some(text),
            _ => None,
        }),
        _ => None,
    };
    match text {
        Some(text) => {
            let original = text.clone();
            text.push_str(TAG);
            Ok(original)
        }
        None => input("continue_final_message: the last message has no text to continue"),
    }
}

fn cut_after_final_message(text: &mut String, final_text: &str) -> Outcome<()> {
    let place = text.rfind(TAG.trim_end()).filter(|_| text.contains(final_text.trim()));
    let Some(place) = place else {
        return input("continue_final_message: the chat template changes or drops the last message");
    };
    let kept_blank = text[place..].starts_with(TAG);
    text.truncate(place);
    if !kept_blank {
        text.truncate(text.trim_end().len());
    }
    Ok(())
}

/// Renders with marks around generation blocks, notes the places and takes the marks out again.
fn tracked(
    template: &Template,
    index: usize,
    context: minijinja::Value,
    now: i64,
) -> Outcome<(String, Vec<(u64, u64)>)> {
    // Noncharacters, which no text should hold. If one does, the count is off and the next pair is tried.
    for pair in 0..16u32 {
        let mark = |offset: u32| char::from_u32(0xFDD0 + 2 * pair + offset).unwrap_or('\u{FDD0}');
        let (open, close) = (mark(0), mark(1));
        let (marked, blocks) = template.render(index, context.clone(), now, Some((open, close)))?;
        if marked.matches([open, close]).count() != 2 * blocks {
            continue;
        }
        let mut text = String::with_capacity(marked.len());
        let (mut ranges, mut begins, mut length) = (Vec::new(), Vec::new(), 0u64);
        for c in marked.chars() {
            if c == open {
                begins.push(length);
            } else if c == close {
                ranges.push((begins.pop().unwrap_or(length), length));
            } else {
                text.push(c);
                length += 1;
            }
        }
        return Ok((text, ranges));
    }
    input("chat template: the text holds every mark that could track generation blocks")
}
