// Arithmetic on arrays of NCCL's types. Half and quarter precision go through float and are rounded
// after every operation; integers wrap.
//
// Threads: any (pure functions). Ownership: none.
#pragma once

#include <cstddef>

namespace fakegpu {

// Bytes of one element; 0 for what is no type.
std::size_t size_of_type(int dtype);
bool is_floating_type(int dtype);

// into[i] = op(into[i], from[i]) for sum, product, maximum, minimum by NCCL's numbers.
void reduce_arrays(int dtype, int op, std::byte* into, const std::byte* from, std::size_t count);
// data[i] *= the element at `factor`.
void multiply_array(int dtype, std::byte* data, const std::byte* factor, std::size_t count);
// data[i] *= 1 / divisor in floating types, data[i] /= divisor (truncated) in integer ones.
void divide_array(int dtype, std::byte* data, int divisor, std::size_t count);

}  // namespace fakegpu
