// C ABI of the Rust static library `bridge`: tokenizers and chat templates.
// Functions that return int32_t give 0, or one of the negative codes below with the message in iv_last_error() of the
// same thread; their outputs are then untouched. No panic crosses, or prints anything (the first call silences the
// process's panic printer). Handles are immutable and may be used from any thread.
// iv_text is (pointer, length), not terminated, borrowed for the call. iv_buffer is owned by the caller once filled.
#pragma once
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define IV_INPUT (-1)       // the caller's text, file or ids are not acceptable
#define IV_LIMIT (-2)       // a bound was reached: template work, output size, piece lengths
#define IV_PANIC (-3)       // a fault of the library
#define IV_REFUSED (-4)     // a chat template called raise_exception; the message is the template's own
#define IV_UNSUPPORTED (-5) // well formed, but unknown here

typedef struct { const uint8_t* data; size_t len; } iv_text;
typedef struct { uint8_t* data; size_t len, capacity; } iv_buffer;
typedef struct iv_tokenizer iv_tokenizer;
typedef struct iv_template iv_template;

// Copies at most `capacity` bytes of this thread's last message; returns its full length.
size_t iv_last_error(uint8_t* out, size_t capacity);
void iv_buffer_free(iv_buffer*);
// Always IV_PANIC: shows that panics are caught.
int32_t iv_test_panic(void);

// tokenizer.ggml.*: model, pre, tokens, token_type, scores, merges, add_space_prefix, remove_extra_whitespaces,
// unknown_token_id (-1: none), precompiled_charsmap.
typedef struct {
  iv_text model, pre;
  const iv_text* tokens; size_t token_count;
  const int32_t* types; size_t type_count;
  const float* scores; size_t score_count;
  const iv_text* merges; size_t merge_count;
  uint8_t space_prefix, remove_extra_whitespaces;
  int64_t unknown;
  iv_text charsmap;
} iv_gguf_vocab;

// What a file of this kind wants around a text when it does not say.
typedef struct { uint8_t bos, eos; } iv_around;
int32_t iv_tokenizer_from_gguf(const iv_gguf_vocab*, const iv_tokenizer** out, iv_around* default_around);
int32_t iv_tokenizer_from_json(iv_text tokenizer_json, const iv_tokenizer** out);
// `file`: the name of a file of ranks, tekken.json or *.tiktoken, which says what the file itself does not.
int32_t iv_tokenizer_from_ranks(iv_text file, iv_text content, const iv_tokenizer** out);
void iv_tokenizer_free(const iv_tokenizer*);

#define IV_TOKEN_CONTROL 1   // hidden when special tokens are skipped
#define IV_TOKEN_RAW_BYTE 2  // one byte of a byte-fallback run
#define IV_TOKEN_KNOWN 4     // the id exists

// Text of every id: token i is bytes[offsets[i] .. offsets[i + 1]). Valid as long as the handle.
typedef struct {
  const uint8_t* bytes;
  const uint32_t* offsets;  // count + 1
  const uint8_t* flags;
  uint32_t count;
  uint8_t strip_start;      // blanks taken off the front of a whole text
  const uint32_t* prefix; size_t prefix_count;  // ids the tokenizer file puts around a text
  const uint32_t* suffix; size_t suffix_count;
} iv_table;
void iv_tokenizer_table(const iv_tokenizer*, iv_table*);

// Ids as uint32_t, nothing added in front or behind. parse_special: the text of a special token becomes its id.
int32_t iv_tokenizer_encode(const iv_tokenizer*, iv_text, uint8_t parse_special, iv_buffer* ids);
// The library's own decoder; the table above is the fast way.
int32_t iv_tokenizer_decode(const iv_tokenizer*, const uint32_t* ids, size_t count, uint8_t skip_special, iv_buffer* text);
// -1: no such token.
int32_t iv_tokenizer_id(const iv_tokenizer*, iv_text token, int64_t* id);

// `globals`: a JSON object of variables for renders that do not set them (bos_token and such).
int32_t iv_template_compile(const iv_text* names, const iv_text* sources, size_t count, iv_text globals,
                            const iv_template** out);
void iv_template_free(const iv_template*);

typedef struct {
  iv_text template_name;  // empty: "tool_use" with tools, else "default", else the only one
  int64_t now;            // wall clock for strftime_now, seconds since 1970
  uint8_t continue_final_message, track_generation;
} iv_render;
// `context`: a JSON object with messages, tools, add_generation_prompt and whatever else the template reads.
// `ranges`: pairs of uint64_t, [begin, end) of generation blocks in code points of the text.
int32_t iv_template_render(const iv_template*, iv_text context, const iv_render*, iv_buffer* text, iv_buffer* ranges);

#ifdef __cplusplus
}
#endif
