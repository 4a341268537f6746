// The file `state` of a checkpoint: all that a run needs to go on bit for bit, and nothing that others read. A head in JSON,
// then the flat spans of the parameters as they lie in memory, each with a checksum.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/byte_source.h"
#include "nn/parameters.h"
#include "runtime/atomic_file.h"

namespace regard::train_loop {

/// What steps have left behind besides numbers of the model.
struct RunState {
  int64_t step = 0;     ///< steps done: the number of the next one
  int64_t updates = 0;  ///< steps that changed the parameters: those that were no outliers
  int64_t tokens = 0;   ///< counted labels so far
  int64_t evaluated_step = 0;  ///< of the last evaluation
  std::optional<double> validation_loss, best_loss;
  int64_t best_step = 0;
  int64_t evaluations_since_best = 0;
  std::vector<double> recent_losses, recent_norms;  ///< what outliers are judged by, oldest first
};

/// What a run must have in common with the one that it continues.
struct RunIdentity {
  std::string config;           ///< train_config_json()
  uint64_t data_hash = 0;       ///< of the token ids
  uint64_t tokenizer_hash = 0;  ///< 0: no tokenizer
  uint64_t layout_hash = 0;     ///< of names, shapes and places of the parameters
};

/// The spans of a run in the order of the file: values, first moments, second moments and, if there is one, the average.
using Spans = std::vector<std::span<float>>;

uint64_t hash_bytes(std::span<const std::byte> bytes);
uint64_t hash_layout(std::span<const nn::Parameter> parameters);

/// Writes the file whole or not at all.
Result<Done> write_state(const std::string& path, const RunState& state, const RunIdentity& identity, const Spans& spans, FileLayer& layer);

/// The head of a state file, checked. Everything that does not fit the format or the size of the file is kCorruptData.
struct StateHead {
  RunState state;
  RunIdentity identity;
  std::vector<uint64_t> checksums;  ///< of each span
  uint64_t elements = 0;            ///< of each span
  uint64_t data_begin = 0;
};
Result<StateHead> read_state_head(const ByteSource& source, std::string_view name);

/// Reads the spans behind a head. kCorruptData for a checksum that does not match; what was read until then is overwritten.
/// kInvalidArgument when the number or the size of the spans differs.
Result<Done> read_state_spans(const ByteSource& source, const StateHead& head, const Spans& spans, std::string_view name);

/// Reads the spans behind a head and keeps none of them: kCorruptData as read_state_spans().
Result<Done> check_state_spans(const ByteSource& source, const StateHead& head, std::string_view name);

}  // namespace regard::train_loop
