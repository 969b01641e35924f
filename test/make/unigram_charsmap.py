"""A small Unigram vocabulary with a table of replacements, trained and read by SentencePiece, as tokenizer.json.

usage: unigram_charsmap.py DATA        DATA: test/data/tokenizers, whose corpus.json it encodes
Needs sentencepiece, tokenizers. The ids are SentencePiece's own, which takes no text for a special token."""
import base64, io, json, os, sys

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

data = sys.argv[1]
texts = [row["text"] for row in json.load(open(os.path.join(data, "corpus.json")))]
# Line ends and tabs are blanks; wide letters and ligatures are those of ASCII; an accent joins its letter.
rules = [("\t", " "), ("\n", " "), ("\r", " "), ("\u3000", " "), ("\ufb01", "fi"), ("\u00bd", "1\u20442"), ("e\u0301", "\u00e9")]
rules += [(chr(0xFEE0 + c), chr(c)) for c in range(0x21, 0x7F)]
hexes = lambda text: " ".join(f"{ord(c):X}" for c in text)
table = "/tmp/unigram_charsmap.tsv"
with open(table, "w") as f:
    f.writelines(f"{hexes(a)}\t{hexes(b)}\n" for a, b in sorted(rules))
trained = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter([line for text in texts for line in text.split("\n") if line.strip()]),
    model_writer=trained, model_type="unigram", vocab_size=900, byte_fallback=True, hard_vocab_limit=False,
    normalization_rule_tsv=table, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, pad_piece="<pad>", num_threads=1)
os.remove(table)
model = sentencepiece_model_pb2.ModelProto.FromString(trained.getvalue())
assert model.normalizer_spec.remove_extra_whitespaces and model.normalizer_spec.add_dummy_prefix

out = Tokenizer(models.Unigram([(p.piece, p.score) for p in model.pieces], unk_id=2, byte_fallback=True))
out.normalizer = normalizers.Sequence([normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap),
                                       normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")])
out.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always")
out.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
out.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<pad>", "</s>", "<unk>")])
out.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
out.save(os.path.join(data, "unigram-charsmap.json"), pretty=False)

reader = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
with open(os.path.join(data, "unigram-charsmap.ids.json"), "w") as f:
    f.write("[\n" + ",\n".join(json.dumps({"ids": reader.encode(t)}, separators=(",", ":")) for t in texts) + "\n]\n")
differ = sum(out.encode(t, add_special_tokens=False).ids != reader.encode(t) for t in texts if "</s>" not in t and "<pad>" not in t and "<unk>" not in t)
print(len(model.pieces), "pieces,", len(texts), "texts,", differ, "of which the other library reads otherwise")
