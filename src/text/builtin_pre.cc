// The splitters that GGUF files name but do not contain. The patterns are facts of the published models, in the spelling of their
// tokenizer.json: GPT-2 (Radford et al. 2019), Llama 3, Qwen2, SmolLM.
#include "text/builtin_pre.h"

#include "text/tokenizer_spec.h"

namespace regard {
namespace {

SplitStep isolated(std::string_view pattern) {
  return {{TextPattern::Kind::kRegex, std::string(pattern)}, SplitBehavior::kIsolated, false};
}

}  // namespace

Result<BuiltinPre> builtin_pre_tokenizer(std::string_view pre) {
  const ByteLevelStep bytes{.add_prefix_space = false, .use_regex = false};
  if (pre == "gpt-2") return BuiltinPre{{isolated(kGpt2Pattern), bytes}, false, false};
  if (pre == "smollm") return BuiltinPre{{isolated(R"(\p{N})"), isolated(kGpt2Pattern), bytes}, false, false};
  if (pre == "llama-bpe") return BuiltinPre{{isolated(kLlama3Pattern), bytes}, true, true};
  if (pre == "qwen2") return BuiltinPre{{isolated(kQwen2Pattern), bytes}, false, false};
  return failure(Code::kUnsupported,
                 "[builtin_pre_tokenizer] unknown pre-tokenizer '{}'; known are gpt-2, smollm, llama-bpe, qwen2", pre);
}

}  // namespace regard
