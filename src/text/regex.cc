#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>

#include <array>
#include <utility>

#include "text/utf8.h"

namespace regard {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
// A published pattern needs a handful of steps per character of its longest match; a catastrophic one needs 2^n. The first search
// that counts this many steps for one starting point is given up, after a fraction of a second.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kDepthLimit = 100'000;
constexpr uint32_t kHeapLimitKib = 64 << 10;
constexpr size_t kJitStackStart = 32 << 10, kJitStackMax = 1 << 20;

constexpr std::string_view kSpace = R"(\t-\r\x{85}\p{Z})";
// The complement of kSpace as ranges, for \S inside a class, where a complement cannot be written.
constexpr std::string_view kNotSpace =
    R"(\x{0}-\x{8}\x{E}-\x{1F}!-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027}\x{202A}-\x{202E})"
    R"(\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

Result<std::string> translate_pattern(std::string_view p) {
  const auto unsupported = [&](size_t at, std::string_view what) {
    return failure(Code::kUnsupported, "[Regex] {} at byte {} of pattern '{}' means something else here and is not supported",
                   what, at, p);
  };
  std::string out;
  bool in_class = false;
  size_t class_start = 0;  // where a ']' would still be a literal
  for (size_t i = 0; i < p.size(); ++i) {
    const char c = p[i];
    if (c == '\\') {
      if (i + 1 == p.size()) return corrupt("[Regex] pattern '{}' ends in a backslash", p);
      const char e = p[++i];
      if (e == 's' || e == 'S') {
        const std::string_view set = e == 's' || !in_class ? kSpace : kNotSpace;
        out += in_class ? std::string(set) : std::string(e == 's' ? "[" : "[^") + std::string(set) + "]";
      } else if (std::string_view("hHQECNGKg").find(e) != std::string_view::npos) {
        return unsupported(i - 1, std::string("\\") + e);
      } else {
        out += '\\';
        out += e;
      }
    } else if (!in_class) {
      if (c == '(' && p.substr(i, 2) == "(*") return unsupported(i, "(*");
      if (c == '[') {
        in_class = true;
        out += c;
        if (i + 1 < p.size() && p[i + 1] == '^') out += p[++i];
        class_start = i + 1;
        continue;
      }
      out += c;
    } else {
      if (c == '[' && p.substr(i, 2) == "[:") {  // a POSIX class up to its ":]"
        const size_t end = p.find(":]", i + 2);
        if (end == std::string_view::npos) return unsupported(i, "'['");
        out += p.substr(i, end + 2 - i);
        i = end + 1;
        continue;
      }
      if (c == '[') return unsupported(i, "a class inside a class");
      if (p.substr(i, 2) == "&&") return unsupported(i, "'&&' in a class");
      if (c == ']' && i != class_start) in_class = false;
      out += c;
    }
  }
  return out;
}

struct Regex::Code {
  pcre2_code* code = nullptr;
  std::string source;
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }
};

struct RegexScratch::State {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr);
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

RegexScratch::RegexScratch() : state_(std::make_unique<State>()) {
  if (state_->data == nullptr || state_->context == nullptr) fail(Code::kResourceExhausted, "[Regex] no memory for a search");
  pcre2_set_match_limit(state_->context, kMatchLimit);
  pcre2_set_depth_limit(state_->context, kDepthLimit);
  pcre2_set_heap_limit(state_->context, kHeapLimitKib);
  if (state_->stack != nullptr) pcre2_jit_stack_assign(state_->context, nullptr, state_->stack);
}
RegexScratch::~RegexScratch() = default;

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes)
    return failure(regard::Code::kResourceExhausted, "[Regex] a pattern of {} bytes is over the limit of {}", pattern.size(),
                   kMaxPatternBytes);
  if (valid_prefix(pattern) != pattern.size()) return corrupt("[Regex] the pattern is not UTF-8");
  REGARD_TRY(std::string text, translate_pattern(pattern));
  auto code = std::make_shared<Code>();
  code->source = std::string(pattern);
  int error = 0;
  PCRE2_SIZE at = 0;
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (context != nullptr) pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  // MULTILINE: ^ and $ are the ends of lines, as Oniguruma's default syntax has it.
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at,
                             context.get());
  if (code->code == nullptr) return corrupt("[Regex] pattern '{}': {} at byte {}", pattern, error_text(error), at);
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);  // where there is no JIT, the interpreter serves
  return Regex(std::move(code));
}

Result<Regex> Regex::literal(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}-&").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return compile(escaped);
}

bool Regex::search(std::string_view subject, size_t from, Match& match, RegexScratch& scratch) const {
  const int found = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(subject.data()), subject.size(), from, PCRE2_NO_UTF_CHECK,
                                scratch.state_->data, scratch.state_->context);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0)
    fail(regard::Code::kResourceExhausted, "[Tokenizer::encode] the pattern '{}' gave up at byte {} of {}: {}", code_->source, from,
         subject.size(), error_text(found));
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(scratch.state_->data);
  match = {offsets[0], offsets[1]};
  return true;
}

}  // namespace regard
