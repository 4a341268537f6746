#include "text/jinja/print.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/merge_sort.h"
#include "text/jinja/unicode.h"

namespace regard::jinja {
namespace {

void append_literal(Runtime& runtime, MarkedText& out, const Value& value, int namespaces);

void append_plain(Runtime& runtime, MarkedText& out, std::string_view bytes) {
  runtime.append(out, bytes, Origin::kTemplate);
}

// Writes text between quotes with escapes, each escape with the origin of what it stands for. `escape(code_point)` gives the
// replacement or an empty string.
template <class Escape>
void append_escaped(Runtime& runtime, MarkedText& out, const MarkedText& text, char quote, Escape escape) {
  append_plain(runtime, out, std::string_view(&quote, 1));
  const std::string_view bytes = text.bytes();
  runtime.read(bytes.size());
  size_t kept = 0;
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint c = code_point_at(bytes, at);
    const std::string replacement = c.value < 0 ? std::string() : escape(c.value);
    if (!replacement.empty()) {
      runtime.append(out, text, kept, at);
      runtime.append(out, replacement, text.origin(at, at + c.bytes));
      kept = at + c.bytes;
    }
    at += c.bytes;
  }
  runtime.append(out, text, kept, bytes.size());
  append_plain(runtime, out, std::string_view(&quote, 1));
}

void append_text_literal(Runtime& runtime, MarkedText& out, const MarkedText& text) {
  const bool has_single = text.bytes().find('\'') != std::string_view::npos;
  const bool has_double = text.bytes().find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  append_escaped(runtime, out, text, quote, [quote](int32_t c) -> std::string {
    if (c == quote || c == '\\') return {'\\', static_cast<char>(c)};
    if (c == '\n') return "\\n";
    if (c == '\r') return "\\r";
    if (c == '\t') return "\\t";
    if (is_printable(c)) return {};
    if (c < 0x100) return fmt::format("\\x{:02x}", c);
    return c < 0x10000 ? fmt::format("\\u{:04x}", c) : fmt::format("\\U{:08x}", c);
  });
}

void append_list_literal(Runtime& runtime, MarkedText& out, const List& list, int namespaces) {
  if (list.kind != List::Kind::kList && list.kind != List::Kind::kTuple) {
    runtime.unsupported("printing a range, dict view or generator is not supported; apply `list` first");
  }
  const bool is_list = list.kind == List::Kind::kList;
  append_plain(runtime, out, is_list ? "[" : "(");
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) append_plain(runtime, out, ", ");
    append_literal(runtime, out, list.items[i], namespaces);
  }
  append_plain(runtime, out, is_list ? "]" : (list.items.size() == 1 ? ",)" : ")"));
}

template <class Entries>
void append_entries_literal(Runtime& runtime, MarkedText& out, const Entries& entries, int namespaces) {
  append_plain(runtime, out, "{");
  bool first = true;
  for (const auto& [key, value] : entries) {
    if (!first) append_plain(runtime, out, ", ");
    first = false;
    if constexpr (std::is_same_v<std::decay_t<decltype(key)>, std::string>) {
      append_text_literal(runtime, out, MarkedText(key, Origin::kTemplate));
    } else {
      append_literal(runtime, out, key, namespaces);
    }
    append_plain(runtime, out, ": ");
    append_literal(runtime, out, value, namespaces);
  }
  append_plain(runtime, out, "}");
}

// `namespaces` counts those around the value: they alone can hold themselves.
void append_literal(Runtime& runtime, MarkedText& out, const Value& value, int namespaces) {
  runtime.step();
  if (const MarkedText* text = value.text()) return append_text_literal(runtime, out, *text);
  if (value.is_undefined()) return append_plain(runtime, out, "Undefined");
  if (value.is<None>()) return append_plain(runtime, out, "None");
  if (const bool* flag = value.as<bool>()) return append_plain(runtime, out, *flag ? "True" : "False");
  if (const int64_t* integer = value.as<int64_t>()) return append_plain(runtime, out, fmt::format("{}", *integer));
  if (const double* number = value.as<double>()) return append_plain(runtime, out, float_literal(*number));
  if (const List* list = value.list()) return append_list_literal(runtime, out, *list, namespaces);
  if (const Dict* dict = value.dict()) return append_entries_literal(runtime, out, dict->entries(), namespaces);
  if (const auto* ns = value.as<std::shared_ptr<Namespace>>()) {
    constexpr int kMaxNamespaces = 4;
    if (namespaces >= kMaxNamespaces) runtime.wrong("a namespace that holds itself cannot be printed");
    append_plain(runtime, out, "<Namespace ");
    append_entries_literal(runtime, out, (*ns)->attributes, namespaces + 1);
    return append_plain(runtime, out, ">");
  }
  runtime.unsupported("printing a {} is not supported", type_name(value));
}

class JsonPrinter {
 public:
  JsonPrinter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  void print(const Value& value) {
    runtime_.step();
    if (const MarkedText* text = value.text()) return print_text(*text);
    if (const List* list = value.list()) return print_list(*list);
    if (const Dict* dict = value.dict()) return print_dict(*dict);
    std::string scalar;
    if (!scalar_text(value, scalar)) runtime_.wrong("a {} cannot be written as JSON", type_name(value));
    plain(scalar);
  }
  MarkedText take() { return std::move(out_); }

 private:
  void plain(std::string_view bytes) { append_plain(runtime_, out_, bytes); }

  static bool scalar_text(const Value& value, std::string& text) {
    if (value.is<None>()) {
      text = "null";
    } else if (const bool* flag = value.as<bool>()) {
      text = *flag ? "true" : "false";
    } else if (const int64_t* integer = value.as<int64_t>()) {
      text = fmt::format("{}", *integer);
    } else if (const double* number = value.as<double>()) {
      text = std::isnan(*number) ? "NaN" : (std::isinf(*number) ? (*number > 0 ? "Infinity" : "-Infinity") : float_literal(*number));
    } else {
      return false;
    }
    return true;
  }

  void print_text(const MarkedText& text) {
    append_escaped(runtime_, out_, text, '"', [this](int32_t c) -> std::string {
      switch (c) {
        case '"': return "\\\"";
        case '\\': return "\\\\";
        case '\n': return "\\n";
        case '\r': return "\\r";
        case '\t': return "\\t";
        case '\f': return "\\f";
        case '\b': return "\\b";
        default: break;
      }
      if (c < 0x20 || (c > 0x7E && c < 0x10000 && style_.ascii_only)) return fmt::format("\\u{:04x}", c);
      if (c < 0x10000 || !style_.ascii_only) return {};
      const int32_t rest = c - 0x10000;  // as two surrogates
      return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    });
  }

  void new_line() {
    if (!style_.indent) return;
    plain("\n");
    for (int i = 0; i < level_; ++i) plain(*style_.indent);
  }

  void print_list(const List& list) {
    if (list.kind != List::Kind::kList && list.kind != List::Kind::kTuple) {
      runtime_.wrong("a range, dict view or generator cannot be written as JSON; apply `list` first");
    }
    if (list.items.empty()) return plain("[]");
    plain("[");
    ++level_;
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) plain(style_.item_separator);
      new_line();
      print(list.items[i]);
    }
    --level_;
    new_line();
    plain("]");
  }

  void print_dict(const Dict& dict) {
    if (dict.size() == 0) return plain("{}");
    std::vector<const Dict::Entry*> entries;
    entries.reserve(dict.size());
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      merge_sort(entries, [this](const Dict::Entry* left, const Dict::Entry* right) {
        runtime_.step();
        const int result = order(left->first, right->first);
        if (result == kNoOrder) runtime_.wrong("keys of different kinds cannot be sorted");
        return result < 0;
      });
    }
    plain("{");
    ++level_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) plain(style_.item_separator);
      new_line();
      print_key(entries[i]->first);
      plain(style_.key_separator);
      print(entries[i]->second);
    }
    --level_;
    new_line();
    plain("}");
  }

  void print_key(const Value& key) {
    if (const MarkedText* text = key.text()) return print_text(*text);
    std::string scalar;
    if (!scalar_text(key, scalar)) runtime_.wrong("a {} cannot be a key in JSON", type_name(key));
    plain("\"" + scalar + "\"");
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  MarkedText out_;
  int level_ = 0;
};

}  // namespace

std::string float_literal(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

MarkedText to_literal(Runtime& runtime, const Value& value) {
  MarkedText out;
  append_literal(runtime, out, value, 0);
  return out;
}

MarkedText to_text(Runtime& runtime, const Value& value) {
  if (const MarkedText* text = value.text()) {
    runtime.read(text->size());
    return *text;
  }
  if (value.is_undefined()) return {};
  return to_literal(runtime, value);
}

MarkedText to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonPrinter printer(runtime, style);
  printer.print(value);
  return printer.take();
}

}  // namespace regard::jinja
