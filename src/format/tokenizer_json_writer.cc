// Start at write_tokenizer_json. Every section is written, with null where there is nothing, as the readers of others expect.
#include "format/tokenizer_json_writer.h"

#include <algorithm>
#include <functional>
#include <map>

#include "format/base64.h"
#include "regard/json.h"

namespace regard {
namespace {

/// Null, a component, or a "Sequence" of them, kept under `list`.
template <class Step, class Write>
void write_section(JsonWriter& json, std::string_view key, std::string_view list, const std::vector<Step>& steps, Write&& write) {
  json.key(key);
  if (steps.empty()) {
    json.null();
    return;
  }
  if (steps.size() > 1) json.begin_object().member("type", "Sequence").key(list).begin_array();
  for (const Step& step : steps) {
    json.begin_object();
    write(json, step);
    json.end();
  }
  if (steps.size() > 1) json.end().end();
}

void write_pattern(JsonWriter& json, const TextPattern& pattern) {
  json.key("pattern").begin_object();
  json.member(pattern.kind == TextPattern::Kind::kLiteral ? "String" : "Regex", pattern.text).end();
}

std::string_view behavior_name(SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kRemoved: return "Removed";
    case SplitBehavior::kIsolated: return "Isolated";
    case SplitBehavior::kMergedWithPrevious: return "MergedWithPrevious";
    case SplitBehavior::kMergedWithNext: return "MergedWithNext";
    case SplitBehavior::kContiguous: break;
  }
  return "Contiguous";
}

std::string_view scheme_name(MetaspaceStep::Scheme scheme) {
  switch (scheme) {
    case MetaspaceStep::Scheme::kFirst: return "first";
    case MetaspaceStep::Scheme::kNever: return "never";
    case MetaspaceStep::Scheme::kAlways: break;
  }
  return "always";
}

void write_byte_level(JsonWriter& json, const ByteLevelStep& step) {
  json.member("type", "ByteLevel").member("add_prefix_space", step.add_prefix_space).member("trim_offsets", true);
  json.member("use_regex", step.use_regex);
}

void write_metaspace(JsonWriter& json, const std::string& replacement, MetaspaceStep::Scheme scheme, bool split) {
  json.member("type", "Metaspace").member("replacement", replacement).member("prepend_scheme", scheme_name(scheme));
  json.member("split", split);
}

void write_normalizer(JsonWriter& json, const NormalizerStep& step) {
  if (const auto* replace = std::get_if<ReplaceStep>(&step)) {
    json.member("type", "Replace");
    write_pattern(json, replace->pattern);
    json.member("content", replace->content);
  } else if (const auto* prepend = std::get_if<PrependStep>(&step)) {
    json.member("type", "Prepend").member("prepend", prepend->text);
  } else if (const auto* precompiled = std::get_if<PrecompiledStep>(&step)) {
    json.member("type", "Precompiled").member("precompiled_charsmap", to_base64(precompiled->charsmap));
  } else if (const auto* strip = std::get_if<StripStep>(&step)) {
    json.member("type", "Strip").member("strip_left", strip->left).member("strip_right", strip->right);
  } else {
    json.member("type", "NFC");
  }
}

void write_pre_tokenizer(JsonWriter& json, const PreTokenizerStep& step) {
  if (const auto* bytes = std::get_if<ByteLevelStep>(&step)) {
    write_byte_level(json, *bytes);
  } else if (const auto* split = std::get_if<SplitStep>(&step)) {
    json.member("type", "Split");
    write_pattern(json, split->pattern);
    json.member("behavior", behavior_name(split->behavior)).member("invert", split->invert);
  } else {
    const auto& metaspace = std::get<MetaspaceStep>(step);
    write_metaspace(json, metaspace.replacement, metaspace.scheme, metaspace.split);
  }
}

void write_decoder(JsonWriter& json, const DecoderStep& step) {
  if (std::holds_alternative<ByteLevelDecode>(step)) {
    write_byte_level(json, {});  // its options change nothing when decoding
  } else if (const auto* replace = std::get_if<ReplaceDecode>(&step)) {
    json.member("type", "Replace");
    write_pattern(json, {TextPattern::Kind::kLiteral, replace->pattern});
    json.member("content", replace->content);
  } else if (std::holds_alternative<ByteFallbackDecode>(step)) {
    json.member("type", "ByteFallback");
  } else if (std::holds_alternative<FuseDecode>(step)) {
    json.member("type", "Fuse");
  } else if (const auto* strip = std::get_if<StripDecode>(&step)) {
    json.member("type", "Strip").member("content", strip->content);
    json.member("start", uint64_t{strip->start}).member("stop", uint64_t{strip->stop});
  } else {
    const auto& metaspace = std::get<MetaspaceDecode>(step);
    write_metaspace(json, metaspace.replacement, metaspace.scheme, true);
  }
}

void write_added_tokens(JsonWriter& json, const TokenizerSpec& spec) {
  std::vector<AddedTokenSpec> tokens = spec.added;
  // Ids that the model does not have are given in the order of this list.
  std::sort(tokens.begin(), tokens.end(), [](const AddedTokenSpec& a, const AddedTokenSpec& b) { return a.id < b.id; });
  json.key("added_tokens").begin_array();
  for (const AddedTokenSpec& token : tokens) {
    json.begin_object().member("id", token.id).member("content", token.content).member("single_word", token.single_word);
    json.member("lstrip", token.lstrip).member("rstrip", token.rstrip).member("normalized", token.normalized);
    json.member("special", token.special).end();
  }
  json.end();
}

/// Empty for an id without a token.
std::string token_name(const TokenizerSpec& spec, int32_t id) {
  for (const AddedTokenSpec& token : spec.added) {
    if (token.id == id) return token.content;
  }
  return id >= 0 && static_cast<size_t>(id) < spec.pieces.size() ? spec.pieces[static_cast<size_t>(id)] : std::string();
}

/// The tokens around one text, and the same around each text of a pair.
void write_template(JsonWriter& json, const TokenizerSpec& spec) {
  json.key("post_processor");
  if (spec.prefix.empty() && spec.suffix.empty()) {
    json.null();
    return;
  }
  std::map<std::string, int32_t> names;
  const auto specials = [&](const std::vector<int32_t>& ids, int type) {
    for (const int32_t id : ids) {
      const std::string name = token_name(spec, id);
      names.emplace(name, id);
      json.begin_object().key("SpecialToken").begin_object().member("id", name).member("type_id", type).end().end();
    }
  };
  const auto text = [&](std::string_view name, int type) {
    specials(spec.prefix, type);
    json.begin_object().key("Sequence").begin_object().member("id", name).member("type_id", type).end().end();
    specials(spec.suffix, type);
  };
  json.begin_object().member("type", "TemplateProcessing").key("single").begin_array();
  text("A", 0);
  json.end().key("pair").begin_array();
  text("A", 0);
  text("B", 1);
  json.end().key("special_tokens").begin_object();
  for (const auto& [name, id] : names) {
    json.key(name).begin_object().member("id", name).key("ids").begin_array().value(id).end();
    json.key("tokens").begin_array().value(name).end().end();
  }
  json.end().end();
}

void write_vocabulary(JsonWriter& json, const TokenizerSpec& spec) {
  json.key("vocab").begin_object();
  for (size_t id = 0; id < spec.pieces.size(); ++id) {
    if (!spec.pieces[id].empty()) json.member(spec.pieces[id], uint64_t{id});
  }
  json.end();
}

void write_bpe(JsonWriter& json, const TokenizerSpec& spec, const BpeSpec& bpe) {
  const auto text_or_null = [&](std::string_view key, const std::string& text) {
    json.key(key);
    text.empty() ? json.null() : json.value(text);
  };
  json.member("type", "BPE").key("dropout").null();
  text_or_null("unk_token", bpe.unk_token.value_or(""));
  text_or_null("continuing_subword_prefix", bpe.continuing_subword_prefix);
  text_or_null("end_of_word_suffix", bpe.end_of_word_suffix);
  json.member("fuse_unk", bpe.fuse_unk).member("byte_fallback", bpe.byte_fallback).member("ignore_merges", bpe.ignore_merges);
  write_vocabulary(json, spec);
  // "a b" is read by programs of all ages, but is a merge only where no token has a space.
  const bool spaces = std::any_of(bpe.merges.begin(), bpe.merges.end(), [](const auto& merge) {
    return merge.first.find(' ') != std::string::npos || merge.second.find(' ') != std::string::npos;
  });
  json.key("merges").begin_array();
  for (const auto& [left, right] : bpe.merges) {
    if (spaces) json.begin_array().value(left).value(right).end();
    else json.value(left + " " + right);
  }
  json.end();
}

}  // namespace

Result<std::string> write_tokenizer_json(const TokenizerSpec& spec) {
  if (std::holds_alternative<SpmSpec>(spec.model))
    return failure(Code::kUnsupported, "[write_tokenizer_json] {}: a model that merges by score has no form in tokenizer.json", spec.origin);
  for (const std::vector<int32_t>* ids : {&spec.prefix, &spec.suffix}) {
    for (const int32_t id : *ids) {
      if (token_name(spec, id).empty()) return corrupt("[write_tokenizer_json] {}: the template has token {}, which has no text", spec.origin, id);
    }
  }
  JsonWriter json;
  json.begin_object().member("version", "1.0").key("truncation").null().key("padding").null();
  write_added_tokens(json, spec);
  write_section(json, "normalizer", "normalizers", spec.normalizer, write_normalizer);
  write_section(json, "pre_tokenizer", "pretokenizers", spec.pre_tokenizer, write_pre_tokenizer);
  write_template(json, spec);
  write_section(json, "decoder", "decoders", spec.decoder, write_decoder);
  json.key("model").begin_object();
  if (const auto* bpe = std::get_if<BpeSpec>(&spec.model)) {
    write_bpe(json, spec, *bpe);
  } else if (const auto* unigram = std::get_if<UnigramSpec>(&spec.model)) {
    json.member("type", "Unigram").key("unk_id");
    if (unigram->unk_id) json.value(*unigram->unk_id);
    else json.null();
    json.key("vocab").begin_array();
    for (size_t id = 0; id < unigram->scores.size(); ++id) json.begin_array().value(spec.pieces[id]).value(unigram->scores[id]).end();
    json.end().member("byte_fallback", unigram->byte_fallback);
  } else {
    json.member("type", "WordLevel");
    write_vocabulary(json, spec);
    json.member("unk_token", std::get<WordLevelSpec>(spec.model).unk_token);
  }
  return json.end().end().finish(JsonStyle::kIndented) + "\n";
}

}  // namespace regard
