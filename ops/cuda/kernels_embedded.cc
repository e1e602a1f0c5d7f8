// The code of kernels.cu for all architectures, as bytes of this library.
#include "ops/cuda/kernels.h"

#ifdef KOLO_FATBIN
// The assembler puts the file in: no tool, and no text of megabytes.
asm(".pushsection .rodata\n"
    ".balign 64\n"
    ".hidden kolo_fatbin_begin\n"
    ".globl kolo_fatbin_begin\n"
    "kolo_fatbin_begin:\n"
    ".incbin \"" KOLO_FATBIN
    "\"\n"
    ".hidden kolo_fatbin_end\n"
    ".globl kolo_fatbin_end\n"
    "kolo_fatbin_end:\n"
    ".byte 0\n"
    ".popsection\n");
extern "C" {
[[gnu::visibility("hidden")]] extern const std::byte kolo_fatbin_begin[];
[[gnu::visibility("hidden")]] extern const std::byte kolo_fatbin_end[];
}
#endif

namespace kolo::internal::cuda {

#ifdef KOLO_FATBIN
std::span<const std::byte> embedded_kernels() {
  return {kolo_fatbin_begin, static_cast<std::size_t>(kolo_fatbin_end - kolo_fatbin_begin)};
}
#else
std::span<const std::byte> embedded_kernels() { return {}; }
#endif

std::string kernels_note() { return KOLO_KERNELS_NOTE; }

}  // namespace kolo::internal::cuda
