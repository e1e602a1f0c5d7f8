// kolo for C++: move-only owners over kolo.h, header-only, C++17 (std::span where C++20 has it).
//
//     kolo::Context context;
//     std::vector<float> gradient(n), sum(n);
//     context.allreduce(gradient, kolo::Op::avg);                          // blocks, in place
//     context.allreduce(gradient, sum, kolo::Op::sum);                     // from one to another
//     kolo::Request done = context.allreduce_async(std::span(gradient).first(n / 2), kolo::Op::sum,
//                                                  kolo::Options().name("layer1.weight"));
//     done.wait();
//
// Vectors, arrays and spans are taken from C++20 on; pointers and a count always. A trainer's
// helpers (broadcast of parameters, sampler, gradient reducer, ...) are in training.hpp, for C++20.
// Errors are exceptions of the class Error, with status and text, thrown by this header, never by
// the library. Functions that ask whether something is done return a bool.
// Ownership and blocking: a Context shuts down when destroyed, and must outlive its Requests. A
// Request that is still running when destroyed *waits*, because its buffers are kolo's until then:
// unwinding the stack must not free them early. detach() gives a Request up instead; the buffers
// must then stay until the operation has ended. A Group that is destroyed without end() is
// submitted and waited for; if an exception is under way, the context is aborted instead.
// Destructors swallow errors. Threads, names, counts and buffers are as in kolo.h.
#ifndef KOLO_KOLO_HPP_
#define KOLO_KOLO_HPP_

#if __cplusplus < 201703L
#error "kolo/kolo.hpp needs C++17: compile with -std=c++17, or -std=c++20 for spans and trainers"
#endif

#include "kolo/allocator.hpp"
#include "kolo/collectives.hpp"
#include "kolo/config.hpp"
#include "kolo/context.hpp"
#include "kolo/error.hpp"
#include "kolo/group.hpp"
#include "kolo/kolo.h"
#include "kolo/options.hpp"
#include "kolo/ragged.hpp"
#include "kolo/request.hpp"
#include "kolo/training.hpp"
#include "kolo/types.hpp"

#endif  // KOLO_KOLO_HPP_
