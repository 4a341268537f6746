// What each way to attention takes of AttentionOptions. docs/attention.md shows this table, and a test makes every call with
// every option: it must honour what the table grants, and refuse the rest by name.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace regard {

/// The public calls, in the order of the table's columns.
inline constexpr std::array<std::string_view, 5> kAttentionCalls = {
    "attend", "attend_backward", "attention_weights and what looks", "attend_onto", "attend_talking_heads"};

struct AttentionCapability {
  std::string_view option;  ///< the field of AttentionOptions, as refusals name it
  std::string_view what;
  std::array<bool, kAttentionCalls.size()> taken;
};

inline constexpr AttentionCapability kAttentionCapabilities[] = {
    {"scale", "any finite scale", {true, true, true, true, true}},
    {"softcap", "soft-cap", {true, true, true, true, true}},
    {"arithmetic", "bf16 dot products", {true, false, false, true, false}},
    {"bias", "dense bias of any broadcast", {true, true, true, true, false}},
    {"alibi", "ALiBi", {true, true, true, true, false}},
    {"t5", "T5 buckets", {true, true, true, true, false}},
    {"xl", "Transformer-XL", {true, true, true, true, false}},
    {"sink", "sink per head", {true, true, true, false, false}},
    {"dropout", "dropout by counter", {true, true, true, false, false}},
    {"q_positions", "a position for every slot", {true, true, true, true, true}},
    {"q_offsets", "packed sequences", {true, true, true, true, true}},
    {"query_lengths", "padding queries", {true, true, true, true, true}},
    {"limits", "key lengths and documents beside the mask", {true, true, true, true, true}},
};

/// The table in Markdown.
inline std::string attention_capabilities_markdown() {
  std::string text = "| |";
  for (const std::string_view call : kAttentionCalls) text += " " + std::string(call) + " |";
  text += "\n| --- |";
  for (size_t i = 0; i < kAttentionCalls.size(); ++i) text += " --- |";
  for (const AttentionCapability& capability : kAttentionCapabilities) {
    text += "\n| " + std::string(capability.what) + " (`" + std::string(capability.option) + "`) |";
    for (const bool taken : capability.taken) text += taken ? " yes |" : " refused |";
  }
  return text + "\n";
}

}  // namespace regard
