#!/usr/bin/env python3
"""Makes extra.json: what Hugging Face's tokenizers library does with odd parts and odd texts.

usage: tests/golden/tokenizers/make_extra.py > tests/golden/tokenizers/extra.json

Most cases are about where a text is cut and what becomes of its characters, not about merging. They use a model that
shows exactly that: a token for each byte, and another for each byte that ends a word. Its ids are not stored, but the
words they spell: as lengths in bytes where the text is only cut ("splits"), as texts where it is changed too
("rewrites", with numbers for added tokens).
"""
import json
import random
import sys

import tokenizers
from tokenizers import Tokenizer


def byte_characters():
    shown = list(range(33, 127)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    table, extra = {}, 0
    for byte in range(256):
        if byte in shown:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(256 + extra)
            extra += 1
    return table


BYTES = byte_characters()
TAIL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def marking_model():
    vocab = {BYTES[b]: b for b in range(256)}
    vocab.update({BYTES[b] + "</w>": 256 + b for b in range(256)})
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": "</w>", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": vocab, "merges": []}


def tokenizer(model, normalizer=None, pre=None, post=None, added=()):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(added),
            "normalizer": normalizer, "pre_tokenizer": pre, "post_processor": post, "decoder": None, "model": model}


def with_tail(*pre):
    return {"type": "Sequence", "pretokenizers": [*pre, TAIL]}


def words(made, text):
    """Words as texts, added tokens as numbers."""
    result, word = [], bytearray()
    for token in made.encode(text, add_special_tokens=False).ids:
        if token >= 512:
            result.append(token)
            continue
        word.append(token % 256)
        if token >= 256:
            result.append(word.decode())
            word = bytearray()
    assert not word
    return result


def added(number, content, **flags):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": False, **flags}


PIECES = [
    "the", "Hello", "WORLD", "iPhone", "camelCase", "HTMLParser", "x", "I", "don't", "I'll", "WE'VE", "it's", "'S", "'ll",
    "'Re", "'\u017f", "o\u2019clock", "1", "42", "007", "1234567", "3.14", "1,000", "0x1F", "\u0664\u0662", "\uff11\uff12",
    "\u00b2", "\u2167", "\u00bd", "\u0967\u0968\u0969", " ", " ", " ", "  ", "   ", "       ", "\t", "\n", "\n\n", "\r\n",
    "\r", " \n", "\n ", "\t\t", "\u00a0", "\u2003", "\u3000", "\u0085", "\u180e", "\u200b", "\ufeff", "\u2028", "\u000b",
    "\u000c", "!", "?!", "...", "\u2026", ",", ";", "(", ")", "[]", "{}", "<|", "|>", "</s>", "#", "@", "$", "\u20ac", "+=",
    "=>", "&&", "\\", "/", "//", "/n", "_", "__init__", "-", "\u2014", "\u201c", "\u201d", "\u00ab", "\u3001", "\u3002",
    "\uff0c", "\uff01", "\u00bf", "\u0964", "\u060c", "\u06d4", "e\u0301", "\u00e9", "a\u0308\u0323", "a\u0323\u0308", "\u0301",
    "\u0301\u0327\u0301", "q\u0307\u0323", "\u1e69", "\u212b", "\u00c5", "\u01c5", "\u01c6", "\u02b0", "\u00aa", "\u0130", "\u0131",
    "\u00df", "\u1e9e", "\u017f", "\u03a3\u03c2", "\u039f\u03a3", "\ufb01", "\ufdfa", "\u2460", "\u24b6", "\U0001d54f",
    "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f",
    "1\ufe0f\u20e3", "\u4f60\u597d", "\u4e16\u754c", "\u6f22\u5b57", "\u3042\u308a\u304c\u3068\u3046", "\u30ab\u30bf\u30ab\u30ca",
    "\uff76\uff9e", "\u30fc", "\ud55c\uad6d\uc5b4", "\u1112\u1161\u11ab", "\uac00\u11a8", "\u3131", "\U00020000", "\uf900",
    "\u0645\u0631\u062d\u0628\u0627", "\u0645\u064f\u062d\u064e\u0645\u0651\u062f", "\u05e9\u05dc\u05d5\u05dd", "\u05e9\u05c1\u05b8",
    "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u041f\u0440\u0438\u0432\u0435\u0442",
    "\u0439", "\u0438\u0306", "\u0393\u03b5\u03b9\u03ac", "\u10d2\u10d0", "\u1c90", "\u13a0", "\u0dc1\u0dca\u200d\u0dbb\u0dd3",
    "\u200d", "\u200c", "\u202e", "\u0001", "\u001b[0m", "\u007f", "\u009f", "\ue000", "\ufffd", "\ufffe", "\u0378", "\u00ad",
    "\U0010ffff", "\U000e0041", "\u2581", "\u2581\u2581", "\u0120", "caf\u00e9", "na\u00efve", "\u00c9COLE", "Stra\u00dfe",
]

CURATED = [
    "What", "Hello world", " leading", "trailing ", "  two  ", "a\n\n\nb", "a \n b", "a\r\n\r\nb", "tab\there", "x = y+1;  // note\n",
    "def f(x):\n    return x**2\n\n", "1234567890 12 1 123 1234", "I'M YOU'RE he'd 'tis", "don\u2019t", "https://a.b/c?d=e&f=g#h",
    "   \n   ", "\n", " ", "\t \t", "a" * 40, " " * 40 + "x", "\n" * 20, "!" * 30, "7" * 20, "\u0301" * 10, "\U0001f600" * 6,
    "\u4f60" * 12, "\u0e01\u0e33" * 5, "\uac00" * 8, "A\u0301" * 6, "aA" * 10, "\u3000\u3000x", "\u00a0x\u00a0 y", "\u0085\u0085x",
    "x\u180ey \u180e z", "x\u200by", "<|im_start|>user\nhi<|im_end|>", "a_b__c", "\u0661\u0662\u0663 \uff11\uff12\uff13",
    "\u00bd\u00b2\u2167", "caf\u00e9 cafe\u0301 CAFE\u0301", "\u6f22\u5b57\u304b\u306a\u30ab\u30ca\u4ea4\u3058\u308a", "\ud55c\uad6d\uc5b4 \ub744\uc5b4\uc4f0\uae30",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645", "Zu\u0308rich", "\ufb01n \ufdfa", "\u212b\u2126", "\u01c4\u01c5\u01c6", "ABCdefGHI",
]


def make_texts():
    dice = random.Random(20240607)
    texts = list(CURATED)
    while len(texts) < 260:
        parts = [dice.choice(PIECES) for _ in range(dice.randint(1, 9))]
        text = (dice.choice(["", "", " "])).join(parts)
        if text and text not in texts:
            texts.append(text)
    return texts


CON = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
END = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
CAPITAL, SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def o200k(ending, digits, capital=CAPITAL, small=SMALL, head=""):
    start = r"[^\r\n\p{L}\p{N}]?"
    return (f"{head}{start}{capital}*{small}+{ending}|{start}{capital}+{small}*{ending}|{digits}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*" + END)


def with_han(letters):
    return "[" + letters[1:-1] + r"&&[^\p{Han}]]"


REGEXES = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "qwen2": CON + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + END,
    "llama3": CON + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + END,
    "o200k": o200k(CON + "?", r"\p{N}{1,3}"),
    "tekken": o200k("", r"\p{N}"),
    "kimi": o200k(CON + "?", r"\p{N}{1,3}", with_han(CAPITAL), with_han(SMALL), r"[\p{Han}]+|"),
    "bailing": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    "bloom": " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+",
    "words": r"\w+|\W",
    "boundaries": r"\b",
    "marks": r"\p{M}+|\P{M}",
    "counted": r"\p{N}{1,3}+|\p{L}{,2}",
    "lines": r"^.+$",
    "any line": r"(?m:.+)",
    "inverse": r"[^\S\n]+|[^\W_]+",
    "hexadecimal": r"\h+|\H",
    "thousands": r"\d{1,3}(?=(?:\d{3})*\b)",
    "lookahead alone": r"(?=(\d{3})+(?!\d))",
    "lookbehind": r"(?<=\p{Ll})(?=\p{Lu})",
    "scripts": r"\p{Hiragana}+|\p{Katakana}+|\p{Hangul}+|\p{Greek}+|\p{Cyrillic}+",
    "long names": r"\p{Letter}+|\p{^Number}",
    "posix": r"[[:alpha:]]+|[[:digit:]]+|[[:space:]]+",
}


def regex(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def string(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"String": pattern}, "behavior": behavior, "invert": invert}


def splits():
    for name, pattern in REGEXES.items():
        yield name, [regex(pattern)]
    yield "deepseek", [regex(r"\p{N}{1,3}"), regex("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), regex(
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*" + END)]
    for behavior in ("MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            yield f"{behavior} {invert}", [regex(r"\s|\p{N}", behavior, invert)]
    yield "string", [string("a")]
    yield "string previous", [string(" ", "MergedWithPrevious")]
    yield "digits", [{"type": "Digits", "individual_digits": False}]
    yield "each digit", [{"type": "Digits", "individual_digits": True}]
    for behavior in ("Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        yield f"punctuation {behavior}", [{"type": "Punctuation", "behavior": behavior}]
    yield "fixed length", [{"type": "FixedLength", "length": 3}]
    yield "starcoder", [{"type": "Digits", "individual_digits": True}, regex(REGEXES["gpt2"])]


def nested(kind, *steps):
    name = {"normalizer": "normalizers", "pre": "pretokenizers"}[kind]
    return {"type": "Sequence", name: list(steps)}


def rewrites():
    for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"):
        yield form, {"type": form}, TAIL, []
    yield "nfd strip", nested("normalizer", {"type": "NFD"}, {"type": "StripAccents"}), TAIL, []
    for left, right in ((True, True), (True, False), (False, True), (False, False)):
        yield f"strip {left} {right}", {"type": "Strip", "strip_left": left, "strip_right": right}, TAIL, []
    yield "prepend", {"type": "Prepend", "prepend": "\u2581"}, TAIL, []
    yield "replace", {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}, TAIL, []
    yield "replace regex", {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": "_"}, TAIL, []
    yield "replace by nothing", {"type": "Replace", "pattern": {"Regex": r"[\p{P}]"}, "content": ""}, TAIL, []
    for flags in range(16):
        accents = (None, True, False)[flags % 3]
        yield f"bert {flags}", {"type": "BertNormalizer", "clean_text": bool(flags & 1), "handle_chinese_chars": bool(flags & 2),
                                "strip_accents": accents, "lowercase": bool(flags & 4)}, TAIL, []
    for scheme in ("always", "first", "never"):
        for split in (True, False):
            yield f"metaspace {scheme} {split}", None, with_tail(
                {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": split}), [added(600, "<x>")]
    yield "metaspace normal", {"type": "Strip", "strip_left": True, "strip_right": False}, with_tail(
        {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}), []
    yield "removed", None, with_tail(regex(r"\s+", "Removed")), []
    yield "removed inverse", None, with_tail(regex(r"\p{L}+", "Removed", True)), []
    yield "whitespace", None, with_tail({"type": "Whitespace"}), []
    yield "whitespace split", None, with_tail({"type": "WhitespaceSplit"}), []
    yield "punctuation removed", None, with_tail({"type": "Punctuation", "behavior": "Removed"}), []
    yield "bert words", None, with_tail({"type": "BertPreTokenizer"}), []
    yield "delimiter", None, with_tail({"type": "CharDelimiterSplit", "delimiter": "-"}), []
    yield "byte prefix", None, {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, [
        added(600, "<x>")]
    yield "prefix in sequence", None, nested("pre", regex(r"\d+"), {"type": "ByteLevel", "add_prefix_space": True,
                                             "trim_offsets": True, "use_regex": False}), []
    yield "added", {"type": "Lowercase"}, TAIL, [
        added(600, "<x>", special=True), added(601, "<x>y"), added(602, "word", single_word=True),
        added(603, "[L]", lstrip=True), added(604, "[R]", rstrip=True), added(605, "[B]", lstrip=True, rstrip=True),
        added(606, "NORM", normalized=True), added(607, "\u00c9t", normalized=True, single_word=True), added(608, " s")]
    yield "added composed", {"type": "NFC"}, TAIL, [added(600, "e\u0301", normalized=True), added(601, "\u00e9x"),
                                                   added(602, "a\u0308", normalized=False)]
    yield "added prepended", nested("normalizer", {"type": "Prepend", "prepend": "_"}), TAIL, [added(600, "<x>")]


def rewrite_texts(name):
    if name.startswith("added") or "prefix" in name or name.startswith("metaspace"):
        return ["<x>", "a<x>b", " <x> ", "<x>y<x>", "a<x> b <x>", "words word  word. sword word2 word\u00e9 _word word", "a [L] b", "a  [L][L]b",
                "a[R]  b", "[R] [R] x", "a  [B]  b  [B]  c", "[L] [R] [B]", "norm NORM Norm xnormx", "\u00c9t \u00c9tat \u00e9t", "a s [R] s s",
                "e\u0301x \u00e9x", "a\u0308 \u00e4", "", " ", "  x  y", "\u2581x \u2581 y", "x", " x", "a\u3000[L]\u3000b\u2003[R]\u2003c", "12ab 34", "\u200dword",
                "\u2460word", "word\u203f"]
    plain = ["", " ", "Hello World", "  a b  ", "\t\nx\u00a0\u3000", "caf\u00e9 cafe\u0301", "\u00c5\u212b\u2126", "\ufb01\ufdfa\u00bd", "\u0130I\u0131", "\u039f\u03a3 \u03a3", "Stra\u00dfe\u1e9e",
             "\uac00\u1112\u1161\u11ab", "a\u0323\u0308a\u0308\u0323", "\u0301x", "q\u0307\u0323\u0301" * 3, "\u4f60\u597dx\U00020000\U0002b820", "a-b--c", "it's (ok).", "x_y \u203f z",
             "a\u0001b\u007f\ufffd\u200b\u00ad", "\ue000\u0378\ufffe", "\U0001f468\u200d\U0001f469 \u2764\ufe0f", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u01c4\u01c5 \u1c90", "1\u00b2\u0663\u2167", "\u24b6\u200dx", "\u0958\u0344\u2adc",
             "\u30ab\u3099\uff76\uff9e", "\u05e9\u05c1\u05b8", "x\u2028y\u0085z\u180ew"]
    return plain


def byte_fallback(vocab):
    for byte in range(256):
        vocab.setdefault(f"<0x{byte:02X}>", len(vocab))
    return vocab


def bpe(vocab, merges, **settings):
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": merges, **settings}


def numbered(*tokens):
    return {token: number for number, token in enumerate(tokens)}


ABC = numbered("<unk>", "a", "b", "c", "d", "ab", "bc", "abc", "cd", "abcd", "aa", "aaaa", "e\u0301", " ")
MERGES = [["a", "b"], ["b", "c"], ["a", "a"], ["ab", "c"], ["c", "d"], ["ab", "cd"], ["aa", "aa"], ["a", "bc"]]
TEMPLATE = {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "two", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "one", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"one": {"id": "one", "ids": [1], "tokens": ["a"]},
                               "two": {"id": "two", "ids": [2, 3], "tokens": ["b", "c"]}}}
WORDPIECE = numbered("[UNK]", "un", "##aff", "##able", "affable", "a", "##b", "##c", "\u00fcb", "##er", "x", "##" + "y" * 20, ".", "want", "##ed")
SCORED = [["<unk>", 0.0], ["a", -1.5], ["b", -1.5], ["ab", -2.0], ["abc", -5.5], ["c", -3.0], ["bc", -2.25], ["\u2581", -2.0], ["\u2581a", -2.5],
          ["\u2581ab", -4.0], ["\u4f60", -6.0], ["cab", -3.25], ["aaa", -3.0]]


def models():
    plain = ["", "abcd", "aabbccdd", "aaaaaaa", "abcabcabcd", "xaby", "xxaxx", "\u00e9\u4f60a", "a b", "abcd abcd x", "dcba", "aaab" * 20]
    for unk in (None, "<unk>"):
        for fuse in (False, True):
            yield f"bpe {unk} {fuse}", tokenizer(bpe(ABC, MERGES, unk_token=unk, fuse_unk=fuse)), plain
    yield "bpe strings", tokenizer(bpe(ABC, ["#version: 0.2", *(" ".join(pair) for pair in MERGES)])), plain
    yield "bpe ignore", tokenizer(bpe(ABC, MERGES[:2], ignore_merges=True), pre={"type": "WhitespaceSplit"}), plain
    yield "bpe bytes", tokenizer(bpe(byte_fallback(dict(ABC)), MERGES, byte_fallback=True, unk_token="<unk>", fuse_unk=True)), plain
    few = {token: number for token, number in byte_fallback(dict(ABC)).items() if token not in ("<0xC3>",)}
    yield "bpe some bytes", tokenizer(bpe(few, MERGES, byte_fallback=True, unk_token="<unk>", fuse_unk=True)), plain
    yield "bpe some bytes apart", tokenizer(bpe(few, MERGES, byte_fallback=True, unk_token="<unk>")), plain
    prefixed = numbered("<unk>", "a", "##b", "##c", "a##b", "ab", "##bc", "abc", "b", "c", "##a")
    yield "bpe prefix", tokenizer(bpe(prefixed, [["a", "##b"], ["##b", "##c"], ["a", "##bc"]], continuing_subword_prefix="##",
                                      unk_token="<unk>"), pre={"type": "WhitespaceSplit"}), plain
    suffixed = numbered("<unk>", "a", "b", "c", "a</w>", "b</w>", "c</w>", "ab</w>", "abc</w>", "ab")
    yield "bpe suffix", tokenizer(bpe(suffixed, [["a", "b</w>"], ["a", "b"], ["ab", "c</w>"]], end_of_word_suffix="</w>", unk_token="<unk>"),
                                  pre={"type": "WhitespaceSplit"}), plain
    yield "template", tokenizer(bpe(ABC, MERGES), post=TEMPLATE), plain
    yield "roberta", tokenizer(bpe(ABC, MERGES), post={"type": "RobertaProcessing", "sep": ["b", 2], "cls": ["a", 1], "trim_offsets": True,
                                                       "add_prefix_space": False}), plain
    yield "added in vocabulary", tokenizer(bpe(ABC, MERGES), added=[added(7, "abc"), added(14, "<new>", special=True), added(15, "bcd")]), [
        *plain, "<new>abcd", "aabcda"]
    yield "wordpiece", tokenizer({"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 30,
                                  "vocab": WORDPIECE}, pre={"type": "BertPreTokenizer"}), [
        "", "unaffable", "abc abcc abd", "\u00fcber", "x" + "y" * 20, "x" + "y" * 40, "wanted.unwanted", "aff"]
    yield "wordlevel", tokenizer({"type": "WordLevel", "vocab": numbered("[UNK]", "a", "b", "hello", "\u4f60\u597d"), "unk_token": "[UNK]"},
                                 pre={"type": "Whitespace"}), ["", "hello a b", "hello, a", "\u4f60\u597d \u4f60", "x"]
    yield "unigram", tokenizer({"type": "Unigram", "unk_id": 0, "vocab": SCORED, "byte_fallback": False},
                               pre={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}), [
        *plain, "cabab", "\u4f60\u4f60ab", "zzz", "azzb zz"]
    yield "unigram whole", tokenizer({"type": "Unigram", "unk_id": 0, "vocab": SCORED, "byte_fallback": False}), [*plain, "abcbca" * 30, "zazbzc"]
    yield "unigram bytes", tokenizer({"type": "Unigram", "unk_id": 0, "vocab": SCORED + [[f"<0x{b:02X}>", -20.0] for b in range(256)],
                                      "byte_fallback": True}), [*plain, "zz\u00e9a"]


def main():
    texts = make_texts()
    result = {"made_by": "tokenizers " + tokenizers.__version__, "texts": texts, "splits": [], "rewrites": [], "models": []}
    problems = []

    def load(name, description):
        try:
            return Tokenizer.from_str(json.dumps(description))
        except Exception as problem:  # the library raises plain ones
            problems.append(f"{name}: {problem}")
            return None

    for name, pre in splits():
        made = load(name, tokenizer(marking_model(), pre=with_tail(*pre)))
        if not made:
            continue
        lengths = []
        for text in texts:
            found = words(made, text)
            if "".join(found) != text:
                problems.append(f"{name}: {text!r} became {found!r}")
            lengths.append([len(word.encode()) for word in found])
        result["splits"].append({"name": name, "pre_tokenizer": with_tail(*pre), "lengths": lengths})
    for name, normalizer, pre, tokens in rewrites():
        model = marking_model()
        if tokens:  # ids of added tokens follow the vocabulary's, so that it is filled up to them
            model["vocab"].update({f"filler {n}": n for n in range(512, 600)})
        made = load(name, tokenizer(model, normalizer, pre, None, tokens))
        if made:
            result["rewrites"].append({"name": name, "normalizer": normalizer, "pre_tokenizer": pre, "added_tokens": tokens,
                                       "cases": [[text, words(made, text)] for text in rewrite_texts(name)]})
    for name, description, some in models():
        made = load(name, description)
        if made:
            result["models"].append({"name": name, "tokenizer": description, "cases": [
                {"text": text, "ids": made.encode(text).ids, "ids_no_special": made.encode(text, add_special_tokens=False).ids}
                for text in some]})
    for problem in problems:
        print(problem, file=sys.stderr)
    write(result)


def write(result):
    """One line per case, so that differences can be read."""
    def line(value):
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"))

    out = ["{", f'"made_by":{line(result["made_by"])},', '"texts":[']
    out.append(",\n".join(line(text) for text in result["texts"]) + "],")
    for part, last in (("splits", "lengths"), ("rewrites", "cases"), ("models", "cases")):
        entries = []
        for entry in result[part]:
            head = ",".join(f"{line(key)}:{line(value)}" for key, value in entry.items() if key != last)
            entries.append("{" + head + f',"{last}":[\n' + ",\n".join(line(value) for value in entry[last]) + "]}")
        out.append(f'"{part}":[\n' + ",\n".join(entries) + ("]" if part == "models" else "],"))
    print("\n".join(out) + "}")


if __name__ == "__main__":
    main()
