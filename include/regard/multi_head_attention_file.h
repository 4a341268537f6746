// The weights of one attention module, out of a file of many tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "regard/export.h"
#include "regard/multi_head_attention.h"

namespace regard {

/// MultiHeadAttention::from_torch() over the tensors of a safetensors file, a directory or an index of several, whose
/// names begin with `prefix` ("encoder.layers.0.self_attn."). Numbers are f32, f16 or bf16. Nothing of the file is
/// executed, and nothing but these tensors is read. Errors: as from_torch(); kNotFound, kIo, kCorruptData and
/// kUnsupported for the file.
REGARD_API MultiHeadAttention load_multi_head_attention(const std::string& path, std::string_view prefix,
                                                        int64_t num_heads);

}  // namespace regard
