//! The exported functions; bridge.h says what each one does. Only conversions happen here.

use crate::gguf_vocab::{self, Around, GgufVocab};
use crate::json::Json;
use crate::rank_files;
use crate::render::{self, Request};
use crate::template::Template;
use crate::tokenizer::Tokenizer;
use crate::tokenizer_file;
use crate::{export, input, with_last_error, Outcome};
use std::collections::HashSet;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct IvText {
    data: *const u8,
    len: usize,
}

impl IvText {
    unsafe fn bytes<'a>(self) -> &'a [u8] {
        slice(self.data, self.len)
    }
    unsafe fn text<'a>(self, what: &str) -> Outcome<&'a str> {
        match std::str::from_utf8(self.bytes()) {
            Ok(text) => Ok(text),
            Err(e) => input(format!("{what}: not UTF-8 at byte {}", e.valid_up_to())),
        }
    }
}

#[repr(C)]
pub struct IvBuffer {
    data: *mut u8,
    len: usize,
    capacity: usize,
}

impl IvBuffer {
    fn from(bytes: Vec<u8>) -> IvBuffer {
        let mut bytes = std::mem::ManuallyDrop::new(bytes);
        IvBuffer { data: bytes.as_mut_ptr(), len: bytes.len(), capacity: bytes.capacity() }
    }
}

unsafe fn slice<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if len == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, len)
    }
}

unsafe fn texts<'a>(data: *const IvText, count: usize, what: &str) -> Outcome<Vec<&'a str>> {
    // The place is spelled where it is needed: vocabularies have a hundred thousand texts.
    let text = |(i, item): (usize, &IvText)| item.text(what).or_else(|_| item.text(&format!("{what}[{i}]")));
    slice(data, count).iter().enumerate().map(text).collect()
}

#[no_mangle]
pub unsafe extern "C" fn iv_buffer_free(buffer: *mut IvBuffer) {
    if !buffer.is_null() && (*buffer).capacity != 0 {
        drop(Vec::from_raw_parts((*buffer).data, (*buffer).len, (*buffer).capacity));
        *buffer = IvBuffer { data: std::ptr::null_mut(), len: 0, capacity: 0 };
    }
}

#[no_mangle]
pub unsafe extern "C" fn iv_last_error(out: *mut u8, capacity: usize) -> usize {
    with_last_error(|message| {
        let n = message.len().min(capacity);
        if n > 0 {
            std::ptr::copy_nonoverlapping(message.as_ptr(), out, n);
        }
        message.len()
    })
}

#[no_mangle]
pub extern "C" fn iv_test_panic() -> i32 {
    export(|| panic!("deliberate"))
}

#[repr(C)]
pub struct IvGgufVocab {
    model: IvText,
    pre: IvText,
    tokens: *const IvText,
    token_count: usize,
    types: *const i32,
    type_count: usize,
    scores: *const f32,
    score_count: usize,
    merges: *const IvText,
    merge_count: usize,
    space_prefix: u8,
    remove_extra_whitespaces: u8,
    unknown: i64,
    charsmap: IvText,
}

#[no_mangle]
pub unsafe extern "C" fn iv_tokenizer_from_gguf(
    vocab: *const IvGgufVocab,
    out: *mut *const Tokenizer,
    default_around: *mut Around,
) -> i32 {
    export(|| {
        let vocab = &*vocab;
        let vocab = GgufVocab {
            model: vocab.model.text("tokenizer.ggml.model")?,
            pre: vocab.pre.text("tokenizer.ggml.pre")?,
            tokens: texts(vocab.tokens, vocab.token_count, "tokenizer.ggml.tokens")?,
            types: slice(vocab.types, vocab.type_count).to_vec(),
            scores: slice(vocab.scores, vocab.score_count).to_vec(),
            merges: texts(vocab.merges, vocab.merge_count, "tokenizer.ggml.merges")?,
            space_prefix: vocab.space_prefix != 0,
            unknown: u32::try_from(vocab.unknown).ok(),
            charsmap: vocab.charsmap.bytes(),
            remove_extra_whitespaces: vocab.remove_extra_whitespaces != 0,
        };
        let (tokenizer, around) = gguf_vocab::build(&vocab)?;
        *default_around = around;
        *out = Box::into_raw(Box::new(Tokenizer::new(tokenizer, &vocab.unused())?));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn iv_tokenizer_from_json(json: IvText, out: *mut *const Tokenizer) -> i32 {
    export(|| {
        let tokenizer = tokenizer_file::read(json.bytes())?;
        *out = Box::into_raw(Box::new(Tokenizer::new(tokenizer, &HashSet::new())?));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn iv_tokenizer_from_ranks(file: IvText, content: IvText, out: *mut *const Tokenizer) -> i32 {
    export(|| {
        let tokenizer = rank_files::read(file.text("file name")?, content.bytes())?;
        *out = Box::into_raw(Box::new(Tokenizer::new(tokenizer, &HashSet::new())?));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn iv_tokenizer_free(tokenizer: *const Tokenizer) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer as *mut Tokenizer));
    }
}

#[repr(C)]
pub struct IvTable {
    bytes: *const u8,
    offsets: *const u32,
    flags: *const u8,
    count: u32,
    strip_start: u8,
    prefix: *const u32,
    prefix_count: usize,
    suffix: *const u32,
    suffix_count: usize,
}

#[no_mangle]
pub unsafe extern "C" fn iv_tokenizer_table(tokenizer: *const Tokenizer, out: *mut IvTable) {
    let tokenizer = &*tokenizer;
    *out = IvTable {
        bytes: tokenizer.table.bytes.as_ptr(),
        offsets: tokenizer.table.offsets.as_ptr(),
        flags: tokenizer.table.flags.as_ptr(),
        count: tokenizer.table.flags.len() as u32,
        strip_start: tokenizer.strip_start,
        prefix: tokenizer.prefix.as_ptr(),
        prefix_count: tokenizer.prefix.len(),
        suffix: tokenizer.suffix.as_ptr(),
        suffix_count: tokenizer.suffix.len(),
    };
}

#[no_mangle]
pub unsafe extern "C" fn iv_tokenizer_encode(
    tokenizer: *const Tokenizer,
    text: IvText,
    parse_special: u8,
    ids: *mut IvBuffer,
) -> i32 {
    export(|| {
        let found = (*tokenizer).encode(text.text("text")?, parse_special != 0)?;
        *ids = IvBuffer::from(found.iter().flat_map(|id| id.to_ne_bytes()).collect());
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn iv_tokenizer_decode(
    tokenizer: *const Tokenizer,
    ids: *const u32,
    count: usize,
    skip_special: u8,
    text: *mut IvBuffer,
) -> i32 {
    export(|| {
        *text = IvBuffer::from((*tokenizer).decode(slice(ids, count), skip_special != 0)?.into_bytes());
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn iv_tokenizer_id(tokenizer: *const Tokenizer, token: IvText, id: *mut i64) -> i32 {
    export(|| {
        *id = (*tokenizer).id_of(token.text("token")?).map_or(-1, i64::from);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn iv_template_compile(
    names: *const IvText,
    sources: *const IvText,
    count: usize,
    globals: IvText,
    out: *mut *const Template,
) -> i32 {
    export(|| {
        let names = texts(names, count, "chat template name")?;
        let sources = texts(sources, count, "chat template")?;
        let Json::Map(globals) = Json::parse(globals.text("template globals")?)? else {
            return input("template globals: not a JSON object");
        };
        let templates =
            names.iter().zip(&sources).map(|(name, source)| (name.to_string(), source.to_string())).collect();
        *out = Box::into_raw(Box::new(Template::compile(templates, globals)?));
        Ok(())
    })
}

#[repr(C)]
pub struct IvRender {
    template_name: IvText,
    now: i64,
    continue_final_message: u8,
    track_generation: u8,
}

#[no_mangle]
pub unsafe extern "C" fn iv_template_render(
    template: *const Template,
    context: IvText,
    how: *const IvRender,
    text: *mut IvBuffer,
    ranges: *mut IvBuffer,
) -> i32 {
    export(|| {
        let how = &*how;
        let request = Request {
            template_name: how.template_name.text("template name")?,
            now: how.now,
            continue_final_message: how.continue_final_message != 0,
            track_generation: how.track_generation != 0,
        };
        let rendered = render::render(&*template, context.text("template context")?, &request)?;
        *ranges = IvBuffer::from(
            rendered.generation.iter().flat_map(|r| [r.0.to_ne_bytes(), r.1.to_ne_bytes()].concat()).collect(),
        );
        *text = IvBuffer::from(rendered.text.into_bytes());
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn iv_template_free(template: *const Template) {
    if !template.is_null() {
        drop(Box::from_raw(template as *mut Template));
    }
}
