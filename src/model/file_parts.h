// The parts of a family in a model file, whichever format it is: found by name, decoded to f32. Conversion (convert.cc) and training
// (trainable.h) read files through these; a model that runs keeps the types of its file instead (weights.cc).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/family.h"
#include "model/open.h"

namespace regard::model {

/// The name that the file has for a part: "blk.3.attn_q.weight" or "model.layers.3.self_attn.q_proj.weight".
std::string part_name(const Facts& facts, const PartNames& part, int64_t layer, std::string_view suffix);

/// The tensor of a part, or null. Directories of a base model alone leave the family's prefix out.
const TensorInfo* find_part(const OpenedModel& opened, const Family& family, const PartNames& part, int64_t layer, std::string_view suffix);

/// Every number of a tensor. Errors: kUnsupported for a type that no model computes with; kIo.
std::vector<float> decode_tensor(const TensorSource& source, const TensorInfo& tensor);

/// Adds to the facts of a GGUF file what it leaves to its tensors: the size of the vocabulary, where biases are, and divisors of rotary
/// frequencies, in which the scaling of Llama 3 is recognised. `who` begins the messages.
/// Errors: kCorruptData for a file without an embedding; kUnsupported for divisors that no scaling has.
void complete_facts(std::string_view who, OpenedModel& opened, const Family& family);

}  // namespace regard::model
