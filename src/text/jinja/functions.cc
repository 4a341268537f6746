// Global functions: range, dict, namespace, raise_exception, strftime_now.
#include <array>

#include "text/jinja/builtins.h"
#include "text/jinja/print.h"

namespace regard::jinja {
namespace {

Value range_function(Runtime& runtime, Arguments& arguments) {
  const bool one = arguments.count() == 1;
  int64_t start = arguments.integer("start", 0);
  int64_t stop = arguments.integer("stop", 0);
  const int64_t step = arguments.integer("step", 1);
  if (arguments.count() == 0) runtime.wrong("range needs at least one argument");
  arguments.done();
  if (one) std::swap(start, stop);
  if (step == 0) runtime.wrong("the step of range cannot be 0");
  std::vector<Value> items;
  for (int64_t at = start; step > 0 ? at < stop : at > stop;) {
    if (items.size() >= runtime.limits().max_range) {
      runtime.fail(Code::kResourceExhausted, "a range of more than {} numbers", runtime.limits().max_range);
    }
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return runtime.list(std::move(items), List::Kind::kRange);
}

Value dict_function(Runtime& runtime, Arguments& arguments) {
  Dict dict;
  if (const Value* other = arguments.has_positional() ? arguments.next("mapping") : nullptr) {
    if (other->dict() == nullptr) runtime.unsupported("dict() of a {} is not supported", type_name(*other));
    for (const auto& [key, value] : other->dict()->entries()) runtime.set(dict, key, value);
  }
  for (const auto& [name, value] : arguments.rest_named()) runtime.set(dict, template_text(std::string(name)), value);
  arguments.done();
  return runtime.dict(std::move(dict));
}

Value namespace_function(Runtime& runtime, Arguments& arguments) {
  constexpr size_t kMaxAttributes = 1000;  // they are looked up one after the other
  const auto made = runtime.make_namespace();
  if (const Value* other = arguments.has_positional() ? arguments.next("mapping") : nullptr) {
    if (other->dict() == nullptr) runtime.unsupported("namespace() of a {} is not supported", type_name(*other));
    for (const auto& [key, value] : other->dict()->entries()) {
      if (key.text() == nullptr) runtime.wrong("the attributes of a namespace are named by strs");
      if (made->attributes.size() >= kMaxAttributes) {
        runtime.fail(Code::kResourceExhausted, "a namespace of more than {} attributes", kMaxAttributes);
      }
      made->set(key.text()->bytes(), value);
    }
  }
  for (const auto& [name, value] : arguments.rest_named()) made->set(name, value);
  arguments.done();
  return Value(made);
}

// The template's own refusal: its message is what the caller must see, so it stands first.
Value raise_exception_function(Runtime& runtime, Arguments& arguments) {
  const MarkedText message = to_text(runtime, arguments.require("message"));
  arguments.done();
  constexpr size_t kMaxBytes = 1000;
  runtime.wrong("the template refuses: {}", message.bytes().substr(0, kMaxBytes));
}

constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {"January",   "February", "March",    "April",
                                                      "May",       "June",     "July",     "August",
                                                      "September", "October",  "November", "December"};

// One field of strftime, in English: the C library would follow the locale of the program.
std::string date_field(Runtime& runtime, const std::tm& now, char type) {
  const std::string_view day = kDays[static_cast<size_t>(now.tm_wday) % 7];
  const std::string_view month = kMonths[static_cast<size_t>(now.tm_mon) % 12];
  switch (type) {
    case 'a':
      return std::string(day.substr(0, 3));
    case 'A':
      return std::string(day);
    case 'b':
      return std::string(month.substr(0, 3));
    case 'B':
      return std::string(month);
    case 'd':
      return fmt::format("{:02}", now.tm_mday);
    case 'e':
      return fmt::format("{:2}", now.tm_mday);
    case 'H':
      return fmt::format("{:02}", now.tm_hour);
    case 'I':
      return fmt::format("{:02}", (now.tm_hour + 11) % 12 + 1);
    case 'j':
      return fmt::format("{:03}", now.tm_yday + 1);
    case 'm':
      return fmt::format("{:02}", now.tm_mon + 1);
    case 'M':
      return fmt::format("{:02}", now.tm_min);
    case 'p':
      return now.tm_hour < 12 ? "AM" : "PM";
    case 'S':
      return fmt::format("{:02}", now.tm_sec);
    case 'y':
      return fmt::format("{:02}", now.tm_year % 100);
    case 'Y':
      return fmt::format("{}", now.tm_year + 1900);
    case 'F':
      return date_field(runtime, now, 'Y') + "-" + date_field(runtime, now, 'm') + "-" + date_field(runtime, now, 'd');
    case 'T':
      return date_field(runtime, now, 'H') + ":" + date_field(runtime, now, 'M') + ":" + date_field(runtime, now, 'S');
    case '%':
      return "%";
    default:
      runtime.unsupported("this field of strftime_now is not supported");
  }
}

Value strftime_now_function(Runtime& runtime, Arguments& arguments) {
  const Value& given = arguments.require("format");
  arguments.done();
  if (given.text() == nullptr) runtime.wrong("strftime_now needs a str, not a {}", type_name(given));
  const MarkedText& format = *given.text();
  const std::string_view bytes = format.bytes();
  const std::tm now = runtime.now();
  MarkedText out;
  size_t kept = 0;
  for (size_t at = bytes.find('%'); at != std::string_view::npos; at = bytes.find('%', kept)) {
    runtime.append(out, format, kept, at);
    const std::string field = date_field(runtime, now, at + 1 < bytes.size() ? bytes[at + 1] : '\0');
    runtime.append(out, field, format.origin(at, at + 2));
    kept = at + 2;
  }
  runtime.append(out, format, kept, bytes.size());
  return Value(std::move(out));
}

struct NamedFunction {
  std::string_view name;
  Value (*function)(Runtime&, Arguments&);
};
constexpr auto kFunctions = std::to_array<NamedFunction>({
    {"dict", dict_function},
    {"namespace", namespace_function},
    {"raise_exception", raise_exception_function},
    {"range", range_function},
    {"strftime_now", strftime_now_function},
});

}  // namespace

std::string_view find_function(std::string_view name) noexcept {
  for (const NamedFunction& entry : kFunctions) {
    if (entry.name == name) return entry.name;
  }
  return {};
}

bool is_unsupported_function(std::string_view name) noexcept {
  return name == "cycler" || name == "joiner" || name == "lipsum";
}

Value call_function(Runtime& runtime, std::string_view function, Arguments& arguments) {
  for (const NamedFunction& entry : kFunctions) {
    if (entry.name == function) return entry.function(runtime, arguments);
  }
  runtime.unsupported("`{}` cannot be called here; call a method where it is named", function);
}

}  // namespace regard::jinja
