// How the parameters of a Transformer are called: as in the files of Hugging Face where a family has the shape.
#pragma once

#include <string>

#include "nn/training/block.h"
#include "nn/training/stack.h"

namespace regard::nn::training {

struct StackNames {
  std::string positions, t5_table, norm;
};
StackNames stack_names(const TransformerConfig& config, StackKind kind);
BlockNames block_names(const TransformerConfig& config, StackKind kind, int64_t layer);

/// The token embedding, which all stacks share, and the head's matrix.
std::string embedding_name(const TransformerConfig& config);
std::string head_name(const TransformerConfig& config);

}  // namespace regard::nn::training
