// kolo as a Library: its C API as a trainer calls it.
#pragma once

#include <memory>

#include "bench/kolo_bench/library.h"

namespace kolo::bench {

// Joins the job; leaves it when destroyed.
std::unique_ptr<Library> make_kolo_library(Memory memory);

}  // namespace kolo::bench
