#include "format/tokenizer_json_steps.h"

#include <functional>
#include <string>

#include "format/base64.h"
#include "text/charsmap.h"

namespace regard {
namespace {

using ReadStep = std::function<Result<Done>(std::string_view type, const JsonObject& step)>;

Failure unsupported(const JsonObject& step, std::string_view what, std::string_view type, std::string_view known) {
  return {Code::kUnsupported, step.value().refuse(fmt::format("the {} '{}' is not supported; known are {}", what, type, known)).message};
}

/// Reads a component, or every component of a sequence, which keeps them under `list`.
Result<Done> for_each_step(const JsonValue& section, std::string_view list, const ReadStep& read) {
  REGARD_TRY(const JsonObject step, section.as_object());
  REGARD_TRY(const JsonValue type_value, step.get("type"));
  REGARD_TRY(const std::string_view type, type_value.as_string());
  if (type != "Sequence") return read(type, step);
  REGARD_TRY(const JsonValue parts, step.get(list));
  REGARD_TRY(const JsonArray array, parts.as_array());
  // The depth of the document is limited, and with it this recursion.
  for (const JsonValue part : array) REGARD_CHECK(for_each_step(part, list, read));
  return Done{};
}

Result<Done> read_section(const JsonObject& root, std::string_view key, std::string_view list, const ReadStep& read) {
  const auto section = root.find(key);
  if (!section || section->is_null()) return Done{};
  return for_each_step(*section, list, read);
}

Result<std::string> read_text(const JsonObject& step, std::string_view key) {
  REGARD_TRY(const JsonValue value, step.get(key));
  REGARD_TRY(const std::string_view text, value.as_string());
  return std::string(text);
}

Result<bool> read_flag(const JsonObject& step, std::string_view key, bool usual) {
  REGARD_TRY(const auto flag, step.optional_bool(key));
  return flag.value_or(usual);
}

/// {"String": "..."} or {"Regex": "..."}; the first versions had the text of a regular expression alone.
Result<TextPattern> read_pattern(const JsonObject& step) {
  REGARD_TRY(const JsonValue value, step.get("pattern"));
  if (value.type() == JsonType::kString) {
    REGARD_TRY(const std::string_view text, value.as_string());
    return TextPattern{TextPattern::Kind::kRegex, std::string(text)};
  }
  REGARD_TRY(const JsonObject pattern, value.as_object());
  REGARD_TRY(const auto literal, pattern.optional_string("String"));
  if (literal) return TextPattern{TextPattern::Kind::kLiteral, std::string(*literal)};
  REGARD_TRY(std::string regex, read_text(pattern, "Regex"));
  return TextPattern{TextPattern::Kind::kRegex, std::move(regex)};
}

Result<MetaspaceStep::Scheme> read_scheme(const JsonObject& step) {
  using Scheme = MetaspaceStep::Scheme;
  REGARD_TRY(const auto scheme, step.optional_string("prepend_scheme"));
  if (!scheme) {
    REGARD_TRY(const bool prefix, read_flag(step, "add_prefix_space", true));  // files before there were schemes
    return prefix ? Scheme::kAlways : Scheme::kNever;
  }
  if (*scheme == "always") return Scheme::kAlways;
  if (*scheme == "first") return Scheme::kFirst;
  if (*scheme == "never") return Scheme::kNever;
  return step.value().refuse(fmt::format("the prepend_scheme '{}' is none of always, first, never", *scheme));
}

Result<SplitBehavior> read_behavior(const JsonObject& step) {
  REGARD_TRY(const std::string name, read_text(step, "behavior"));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return step.value().refuse(fmt::format("the behavior '{}' is unknown", name));
}

Result<PreTokenizerStep> read_pre_tokenizer_step(std::string_view type, const JsonObject& step) {
  if (type == "ByteLevel") {
    ByteLevelStep out;
    REGARD_TRY(out.add_prefix_space, read_flag(step, "add_prefix_space", true));
    REGARD_TRY(out.use_regex, read_flag(step, "use_regex", true));
    return PreTokenizerStep(out);
  }
  if (type == "Split") {
    SplitStep out;
    REGARD_TRY(out.pattern, read_pattern(step));
    REGARD_TRY(out.behavior, read_behavior(step));
    REGARD_TRY(out.invert, read_flag(step, "invert", false));
    return PreTokenizerStep(std::move(out));
  }
  if (type == "Digits") {
    REGARD_TRY(const bool single, read_flag(step, "individual_digits", false));
    return PreTokenizerStep(SplitStep{{TextPattern::Kind::kRegex, "\\p{N}"},
                                      single ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false});
  }
  if (type == "Metaspace") {
    MetaspaceStep out;
    REGARD_TRY(out.replacement, read_text(step, "replacement"));
    REGARD_TRY(out.scheme, read_scheme(step));
    REGARD_TRY(out.split, read_flag(step, "split", true));
    return PreTokenizerStep(std::move(out));
  }
  if (type == "WhitespaceSplit") return PreTokenizerStep(SplitStep{{TextPattern::Kind::kRegex, "\\s+"}, SplitBehavior::kRemoved, false});
  return unsupported(step, "pre-tokenizer", type, "ByteLevel, Digits, Metaspace, Sequence, Split, WhitespaceSplit");
}

Result<DecoderStep> read_decoder_step(std::string_view type, const JsonObject& step) {
  if (type == "ByteLevel") return DecoderStep(ByteLevelDecode{});
  if (type == "ByteFallback") return DecoderStep(ByteFallbackDecode{});
  if (type == "Fuse") return DecoderStep(FuseDecode{});
  if (type == "Replace") {
    REGARD_TRY(TextPattern pattern, read_pattern(step));
    if (pattern.kind != TextPattern::Kind::kLiteral) return unsupported(step, "decoder", "Replace with a Regex", "Replace with a String");
    ReplaceDecode out{std::move(pattern.text), {}};
    REGARD_TRY(out.content, read_text(step, "content"));
    return DecoderStep(std::move(out));
  }
  if (type == "Strip") {
    StripDecode out;
    REGARD_TRY(out.content, read_text(step, "content"));
    REGARD_TRY(const auto start, step.optional_integer("start", 0, 1 << 20));
    REGARD_TRY(const auto stop, step.optional_integer("stop", 0, 1 << 20));
    out.start = static_cast<size_t>(start.value_or(0));
    out.stop = static_cast<size_t>(stop.value_or(0));
    return DecoderStep(std::move(out));
  }
  if (type == "Metaspace") {
    MetaspaceDecode out;
    REGARD_TRY(out.replacement, read_text(step, "replacement"));
    REGARD_TRY(out.scheme, read_scheme(step));
    return DecoderStep(std::move(out));
  }
  return unsupported(step, "decoder", type, "ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip");
}

/// The ids that the template's special token `name` stands for.
Result<Done> append_template_ids(const JsonObject& step, const JsonValue& name_value, std::vector<int32_t>& out) {
  REGARD_TRY(const std::string_view name, name_value.as_string());
  REGARD_TRY(const JsonValue table_value, step.get("special_tokens"));
  REGARD_TRY(const JsonObject table, table_value.as_object());
  const auto entry = table.find(name);
  if (!entry) return name_value.refuse("is not among special_tokens");
  REGARD_TRY(const JsonObject token, entry->as_object());
  REGARD_TRY(const JsonValue ids_value, token.get("ids"));
  REGARD_TRY(const JsonArray ids, ids_value.as_array());
  for (const JsonValue id : ids) {
    REGARD_TRY(const int64_t number, id.as_integer(0, static_cast<int64_t>(kMaxVocabulary) - 1));
    out.push_back(static_cast<int32_t>(number));
  }
  return Done{};
}

/// The template for one text: special tokens, the text once, special tokens.
Result<Done> read_template(const JsonObject& step, TokenizerSpec& spec) {
  REGARD_TRY(const JsonValue single_value, step.get("single"));
  REGARD_TRY(const JsonArray single, single_value.as_array());
  std::vector<int32_t> before, after;
  size_t texts = 0;
  for (const JsonValue part_value : single) {
    REGARD_TRY(const JsonObject part, part_value.as_object());
    if (part.find("Sequence")) {
      ++texts;
      continue;
    }
    REGARD_TRY(const JsonValue special, part.get("SpecialToken"));
    REGARD_TRY(const JsonObject special_object, special.as_object());
    REGARD_TRY(const JsonValue name, special_object.get("id"));
    REGARD_CHECK(append_template_ids(step, name, texts == 0 ? before : after));
  }
  if (texts != 1) return single_value.refuse(fmt::format("holds the text {} times, expected once", texts));
  // A later processor of a sequence works on what the earlier ones made.
  spec.prefix.insert(spec.prefix.begin(), before.begin(), before.end());
  spec.suffix.insert(spec.suffix.end(), after.begin(), after.end());
  return Done{};
}

}  // namespace

Result<Done> read_normalizer(const JsonObject& root, TokenizerSpec& spec) {
  return read_section(root, "normalizer", "normalizers", [&](std::string_view type, const JsonObject& step) -> Result<Done> {
    if (type == "NFC") {
      spec.normalizer.emplace_back(NfcStep{});
    } else if (type == "Prepend") {
      PrependStep out;
      REGARD_TRY(out.text, read_text(step, "prepend"));
      spec.normalizer.emplace_back(std::move(out));
    } else if (type == "Replace") {
      ReplaceStep out;
      REGARD_TRY(out.pattern, read_pattern(step));
      REGARD_TRY(out.content, read_text(step, "content"));
      spec.normalizer.emplace_back(std::move(out));
    } else if (type == "Precompiled") {
      REGARD_TRY(const JsonValue value, step.get("precompiled_charsmap"));
      REGARD_TRY(const std::string_view text, value.as_string());
      if (text.size() / 4 * 3 > kMaxCharsmapBytes + 3) return value.refuse(fmt::format("more than {} bytes", kMaxCharsmapBytes));
      auto bytes = from_base64(text);
      if (!bytes) return value.refuse("expected base64");
      spec.normalizer.emplace_back(PrecompiledStep{std::move(*bytes)});
    } else if (type == "Strip") {
      StripStep out;
      REGARD_TRY(out.left, read_flag(step, "strip_left", true));
      REGARD_TRY(out.right, read_flag(step, "strip_right", true));
      spec.normalizer.emplace_back(out);
    } else {
      return unsupported(step, "normalizer", type, "NFC, Precompiled, Prepend, Replace, Sequence, Strip");
    }
    return Done{};
  });
}

Result<Done> read_pre_tokenizer(const JsonObject& root, TokenizerSpec& spec) {
  return read_section(root, "pre_tokenizer", "pretokenizers", [&](std::string_view type, const JsonObject& step) -> Result<Done> {
    REGARD_TRY(PreTokenizerStep out, read_pre_tokenizer_step(type, step));
    spec.pre_tokenizer.push_back(std::move(out));
    return Done{};
  });
}

Result<Done> read_post_processor(const JsonObject& root, TokenizerSpec& spec) {
  return read_section(root, "post_processor", "processors", [&](std::string_view type, const JsonObject& step) -> Result<Done> {
    if (type == "TemplateProcessing") return read_template(step, spec);
    if (type == "ByteLevel") return Done{};  // changes offsets only
    return unsupported(step, "post-processor", type, "ByteLevel, Sequence, TemplateProcessing");
  });
}

Result<Done> read_decoder(const JsonObject& root, TokenizerSpec& spec) {
  const auto section = root.find("decoder");
  if (!section || section->is_null()) spec.joiner = " ";  // without a decoder the reference joins tokens so
  return read_section(root, "decoder", "decoders", [&](std::string_view type, const JsonObject& step) -> Result<Done> {
    REGARD_TRY(DecoderStep out, read_decoder_step(type, step));
    spec.decoder.push_back(std::move(out));
    return Done{};
  });
}

}  // namespace regard
