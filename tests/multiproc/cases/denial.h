// Denial: makes one kind of system call fail for this process from now on, as a machine without
// the memory, or with a stricter policy, would. By a seccomp filter; it cannot be taken back.
#pragma once

#include <string_view>

namespace kolo::cases {

// `what`: memfd_create, ftruncate, fallocate (all of it), fallocate-carve (more than the header),
// fallocate-alloc (more than 4 MiB at once), mmap (of shared memory), mmap-peer (the same, to read
// only). Ends the process with the reason when that cannot be had.
void deny(std::string_view what);

}  // namespace kolo::cases
