// Closes the region that a *_begin-inl.h opened.
}  // namespace regard::kernels::REGARD_ISA_NAMESPACE
#if defined(REGARD_ISA_UNTARGETED)
#undef REGARD_ISA_UNTARGETED
#elif defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef REGARD_ISA_NAMESPACE
