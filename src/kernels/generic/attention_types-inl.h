// The kernels that depend on how keys and values are stored. Each group of types is compiled in a unit of its own: all of them
// in one would be by far the slowest to compile.

struct StoredKernels {
  void (*tile)(const AttentionTile& tile, const AttentionState& state);
  void (*weights)(const AttentionTile& tile, const float* lse_high, const float* lse_low, float* out);
};
extern const StoredKernels kAttentionF16, kAttentionBf16;          // attention_halves-inl.h
extern const StoredKernels kAttentionCodes, kAttentionBlockCodes;  // attention_codes-inl.h
