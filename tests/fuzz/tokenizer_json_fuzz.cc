// Any bytes are refused or make a tokenizer that encodes and decodes; a refusal in encoding (a pattern beyond its limits, a piece
// that a vocabulary of whole pieces lacks) is no finding. What makes a tokenizer can be written, and read again.
#include "fuzz/fuzz.h"

#include <string_view>

#include "format/tokenizer_json.h"
#include "format/tokenizer_json_writer.h"
#include "regard/error.h"
#include "regard/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace regard;
  if (size > (1u << 16)) return 0;
  auto spec = tokenizer_json_spec({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!spec) return 0;
  const bool whole_pieces = std::holds_alternative<WordLevelSpec>(spec->model);
  const auto tokenizer = build_tokenizer(*spec);
  if (!tokenizer) return 0;
  const auto written = write_tokenizer_json(*spec);
  // A template may name an id that has no text; the format can only say it by a name.
  if (written) fuzz::demand(static_cast<bool>(tokenizer_json_spec(*written, "written")));
  else fuzz::demand(written.failure().code == Code::kCorruptData && spec->prefix.size() + spec->suffix.size() > 0);
  for (const std::string_view text : {"hello world 123 \xC3\xA9<s>", " a  b\xFF", ""}) {
    try {
      const auto ids = tokenizer->encode(text, {.special = SpecialTokens::kParse, .add = AddSpecial::kAsModel});
      const std::string decoded = tokenizer->decode(ids);
      StreamDecoder stream(*tokenizer);
      std::string streamed;
      for (const int32_t id : ids) streamed += stream.push(id);
      fuzz::demand(streamed + stream.flush() == decoded);
    } catch (const Error& error) {
      fuzz::demand(error.code() == Code::kResourceExhausted || (whole_pieces && error.code() == Code::kInvalidArgument));
    }
  }
  return 0;
}

std::vector<std::string> regard::fuzz::seeds() {
  return {
      R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"<unk>":3,"<0x41>":4},"merges":["a b"],"unk_token":"<unk>","fuse_unk":true,
          "byte_fallback":true,"ignore_merges":false,"dropout":null},"added_tokens":[{"id":5,"content":"<s>","special":true,"lstrip":false,
          "rstrip":true,"single_word":false,"normalized":false}],"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},
          {"type":"Prepend","prepend":"_"},{"type":"Replace","pattern":{"String":" "},"content":"_"}]},"pre_tokenizer":null,
          "post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
          "pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[5],"tokens":["<s>"]}}},"decoder":{"type":"Sequence","decoders":[
          {"type":"Replace","pattern":{"String":"_"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},
          {"type":"Strip","content":" ","start":1,"stop":1}]}})",
      R"({"model":{"vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]},"pre_tokenizer":{"type":"Sequence","pretokenizers":[
          {"type":"Digits","individual_digits":true},{"type":"Split","pattern":{"Regex":"\\s+|[^\\S]"},"behavior":"MergedWithNext","invert":true},
          {"type":"Metaspace","replacement":"_","prepend_scheme":"first","split":true},{"type":"ByteLevel","add_prefix_space":true}]},
          "decoder":{"type":"Metaspace","replacement":"_","add_prefix_space":true}})",
      R"({"model":{"type":"WordLevel","vocab":{"a":0,"b":1," ":2},"unk_token":"<unk>"},"pre_tokenizer":{"type":"Split",
          "pattern":{"Regex":"[\\s\\S]"},"behavior":"Isolated","invert":false},"decoder":{"type":"Fuse"}})",
      test_data("golden/tokenizer/gpt2.json"), test_data("golden/tokenizer/llama2.json"), test_data("golden/tokenizer/added_tokens.json"), test_data("golden/unigram/precompiled.json"),
      test_data("golden/unigram/bytes.json")};
}
