// The regular expressions of tokenizer files: written for Oniguruma, run by PCRE2 with JIT and limits. A pattern comes from an
// untrusted file, so one that backtracks without end stops with an error.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace regard {

/// Memory that a search needs; one per thread and call, used again from search to search.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  struct State;
  std::unique_ptr<State> state_;
};

/// A compiled pattern, immutable and shared freely between threads.
class Regex {
 public:
  /// Failures: kCorruptData for a pattern that does not compile, kUnsupported for syntax that the two engines read differently.
  static Result<Regex> compile(std::string_view pattern);
  /// A pattern that matches `text` itself.
  static Result<Regex> literal(std::string_view text);

  struct Match {
    size_t begin = 0, end = 0;
  };
  /// The first match in `subject` (well-formed UTF-8) that begins at or after `from`; false when there is none. An empty match
  /// is a match. Errors: kResourceExhausted when the search exceeds its limits.
  bool search(std::string_view subject, size_t from, Match& match, RegexScratch& scratch) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

/// The pattern in PCRE2's spelling: \s and \S mean the White_Space property (PCRE2 would add U+180E). Exposed for tests.
Result<std::string> translate_pattern(std::string_view pattern);

}  // namespace regard
