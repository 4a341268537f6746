// What every operation of a running template shares: where it stands (for messages), what it has used (for limits), and
// the making of values, which is where the limits are kept.
#pragma once

#include <fmt/format.h>

#include <ctime>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace regard::jinja {

using Clock = std::function<std::tm()>;

class Runtime {
 public:
  Runtime(std::string_view source, const Limits& limits, Clock clock)
      : source_(source), limits_(limits), clock_(std::move(clock)) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Limits& limits() const noexcept { return limits_; }
  std::tm now() const { return clock_(); }

  /// Says that what happens from here on belongs to this place of the source.
  void stand_at(uint32_t offset) noexcept { offset_ = offset; }
  uint32_t offset() const noexcept { return offset_; }

  /// Throws Error with the position before and the source after the message.
  template <class... Args>
  [[noreturn]] void fail(Code code, fmt::format_string<Args...> format, Args&&... args) const {
    fail_with(code, fmt::format(format, std::forward<Args>(args)...));
  }
  /// The same for what the template does wrong: kInvalidArgument.
  template <class... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) const {
    fail_with(Code::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  [[noreturn]] void unsupported(fmt::format_string<Args...> format, Args&&... args) const {
    fail_with(Code::kUnsupported, fmt::format(format, std::forward<Args>(args)...));
  }

  /// Counts work: one unit is about one evaluated node.
  void step(uint64_t cost = 1) {
    steps_ += cost;
    if (steps_ > limits_.max_steps) out_of("steps", limits_.max_steps);
  }
  /// Counts the work of looking through bytes.
  void read(size_t bytes) { step(1 + bytes / 16); }

  /// Appends and counts; every text made by a template grows through one of these.
  void append(MarkedText& out, std::string_view bytes, Origin origin) {
    grow(out, bytes.size());
    out.append(bytes, origin);
  }
  void append(MarkedText& out, const MarkedText& more) { append(out, more, 0, more.size()); }
  void append(MarkedText& out, const MarkedText& more, size_t begin, size_t end) {
    grow(out, end - begin);
    out.append(more, begin, end);
  }
  MarkedText slice(const MarkedText& text, size_t begin, size_t end) {
    MarkedText part;
    append(part, text, begin, end);
    return part;
  }

  /// Makes a list; refuses one that is too long, too deep or too heavy.
  Value list(std::vector<Value> items, List::Kind kind = List::Kind::kList);
  /// Makes a dict of what has been set; each set() goes through here, so that growing is counted.
  void set(Dict& dict, Value key, Value value);
  Value dict(Dict dict);
  std::shared_ptr<Namespace> make_namespace();

  /// The items that `for` walks over: of a list, the keys of a dict, the characters of a text; none of an undefined
  /// value.
  ListRef items(const Value& value);

 private:
  [[noreturn]] void fail_with(Code code, std::string_view what) const;
  [[noreturn]] void out_of(std::string_view what, uint64_t limit) const;
  void allocate(size_t bytes);
  void grow(const MarkedText& out, size_t bytes);
  void admit(const Extent& extent) const;

  std::string_view source_;
  const Limits& limits_;
  Clock clock_;
  uint32_t offset_ = 0;
  uint64_t steps_ = 0;
  size_t allocated_ = 0;
  std::vector<std::shared_ptr<Namespace>> namespaces_;  // emptied at the end, since one may hold another or itself
};

/// The arguments of a call, taken one after the other in the order of the parameters.
class Arguments {
 public:
  using Named = std::vector<std::pair<std::string_view, Value>>;
  Arguments(Runtime& runtime, std::string_view callee, std::vector<Value> positional, Named named)
      : runtime_(runtime), callee_(callee), positional_(std::move(positional)), named_(std::move(named)) {}

  /// The argument of the next parameter, or nullptr when it is not given.
  const Value* next(std::string_view parameter);
  /// The same, but it must be given.
  const Value& require(std::string_view parameter);
  /// The next parameter as a truth value, an integer.
  bool flag(std::string_view parameter, bool fallback);
  int64_t integer(std::string_view parameter, int64_t fallback);
  /// Refuses what no parameter took.
  void done() const;

  size_t count() const noexcept { return positional_.size() + named_.size(); }
  bool has_positional() const noexcept { return taken_ < positional_.size(); }
  /// All positional arguments from here on, and all named ones that are left.
  std::vector<Value> rest();
  Named rest_named();

 private:
  Runtime& runtime_;
  std::string_view callee_;
  std::vector<Value> positional_;
  Named named_;
  std::vector<bool> named_taken_;
  size_t taken_ = 0;
};

}  // namespace regard::jinja
