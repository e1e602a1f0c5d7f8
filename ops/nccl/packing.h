// Packing: which tensors of one fused operation travel through the fusion buffer, in one call of
// NCCL's, and which go to NCCL as they lie, in the same group of its calls.
//
// Packing reads and writes each byte once before the call and once after it: 4 bytes of the device
// memory's traffic for each byte. A tensor of its own costs NCCL and its caller about a
// microsecond, whatever its size. So small ones are packed and large ones are not; where the two
// meet is a matter of the device, and measured by bench/gpu.sh.
//
// Pure: all ranks decide alike, from what they have agreed on. Whether memory is registered with
// NCCL is not part of it: that is each rank's own.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace kolo::internal::nccl {

// The default of the option pack_tensor_bytes: at 3 TB/s, 4 MiB of traffic take 1.4 us. Not
// measured.
inline constexpr std::size_t kPackTensorBytes = std::size_t{1} << 20;

struct PackingItem {
  std::size_t bytes = 0;
  double prescale = 1.0;
  double postscale = 1.0;
};

// Puts into `packed`, by tensor, whether it is packed: those of at most `limit` bytes, with the
// scales of the first of them, if they are two at least. True if there are any.
bool plan_packing(std::span<const PackingItem> tensors, std::size_t limit,
                  std::vector<bool>& packed);

}  // namespace kolo::internal::nccl
