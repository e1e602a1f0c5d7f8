// The C boundary: process sets, collectives and join. See api.cc.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bindings_c/handles.h"
#include "bindings_c/options.h"
#include "bindings_c/requests.h"
#include "kolo/kolo.h"

using namespace kolo::internal;  // NOLINT(google-build-using-namespace): all of it is used here

namespace {

// The options into the submission; the name first, so that a refusal can tell the others.
Status take_options(Context& context, const kolo_options* options, Submission& submission) {
  if (options == nullptr) return Status::ok();
  const Result<kolo_options> known = known_options(*options);
  if (!known) return known.status();
  Status status = apply_options(*known, submission);
  return status ? status : context.refuse(submission, std::move(status));
}

Status submit(Context& context, Submission submission, const kolo_options* options,
              kolo_request* request) {
  if (request != nullptr) *request = KOLO_REQUEST_NULL;
  KOLO_RETURN_IF_ERROR(take_options(context, options, submission));
  const bool persistent = options != nullptr && options->persistent != 0;
  if (request == nullptr) {
    if (!persistent) return context.run(std::move(submission));
    return context.refuse(
        submission,
        invalid_argument("a persistent operation needs a request to be started by; pass one"));
  }
  const bool allocates = submission.allocate;
  const auto id =
      persistent ? context.prepare(std::move(submission)) : context.submit(std::move(submission));
  if (!id) return id.status();
  KOLO_CHECK(*id != 0 && id_of(*id) == *id);
  *request = *id | (persistent ? kPersistentBit : 0) | (allocates ? kOutputBit : 0);
  return Status::ok();
}

bool has_name(const kolo_options& options) {
  return options.name != nullptr && *options.name != '\0';
}

Submission submission_of(OpKind kind, const void* input, void* output, std::size_t count,
                         kolo_dtype dtype) {
  Submission submission;
  submission.kind = kind;
  submission.input = input;
  submission.output = output;
  submission.count = count;
  submission.dtype = static_cast<DataType>(dtype);
  return submission;
}

}  // namespace

extern "C" {

// ---- Process sets -----------------------------------------------------------------------------

kolo_status kolo_pset_create(kolo_context* context, const int32_t* ranks, size_t count,
                             int32_t* pset, const kolo_options* options, kolo_request* request) {
  return with_context(context, "kolo_pset_create", [&](Context& inner) {
    if (request != nullptr) *request = KOLO_REQUEST_NULL;
    if (pset == nullptr || (ranks == nullptr && count > 0)) {
      return invalid_argument("kolo_pset_create: pset or ranks is null");
    }
    if (count > static_cast<std::size_t>(inner.size())) {
      return invalid_argument("kolo_pset_create: count is " + std::to_string(count) +
                              ", and the job has " + std::to_string(inner.size()) + " ranks");
    }
    std::vector<std::int64_t> sorted(ranks, ranks + count);
    std::sort(sorted.begin(), sorted.end());
    Submission submission;
    submission.kind = OpKind::kCreateSet;
    submission.has_shape = true;
    submission.number = pset;
    submission.shape = sorted;
    if (options != nullptr && options->shape != nullptr) {
      return invalid_argument("kolo_pset_create: the option shape does not fit; leave it NULL");
    }
    return submit(inner, std::move(submission), options, request);
  });
}

kolo_status kolo_pset_destroy(kolo_context* context, int32_t pset, const kolo_options* options,
                              kolo_request* request) {
  return with_context(context, "kolo_pset_destroy", [&](Context& inner) {
    if (request != nullptr) *request = KOLO_REQUEST_NULL;
    if (options != nullptr && (options->shape != nullptr || has_name(*options))) {
      return invalid_argument(
          "kolo_pset_destroy: the options shape and name do not fit; leave them NULL");
    }
    const std::int64_t id = pset;
    Submission submission;
    submission.kind = OpKind::kDestroySet;
    submission.has_shape = true;
    submission.shape = {&id, 1};
    return submit(inner, std::move(submission), options, request);
  });
}

kolo_status kolo_pset_ranks(kolo_context* context, int32_t pset, int32_t* ranks, size_t capacity,
                            size_t* count) {
  return with_context(context, "kolo_pset_ranks", [&](Context& inner) {
    if (count == nullptr || (ranks == nullptr && capacity > 0)) {
      return invalid_argument("kolo_pset_ranks: count or ranks is null");
    }
    const auto found = inner.ranks_of(pset);
    if (!found) return found.status();
    *count = found->size();
    std::copy_n(found->begin(), std::min(capacity, found->size()), ranks);
    return Status::ok();
  });
}

kolo_status kolo_join(kolo_context* context, int32_t* last_rank, const kolo_options* options,
                      kolo_request* request) {
  return with_context(context, "kolo_join", [&](Context& inner) {
    if (request != nullptr) *request = KOLO_REQUEST_NULL;
    Submission submission;
    if (options != nullptr) {
      const Result<kolo_options> known = known_options(*options);
      if (!known) return known.status();
      KOLO_RETURN_IF_ERROR(apply_options(*known, submission));
      if (options->persistent != 0) {
        return invalid_argument("kolo_join: it cannot be persistent; leave the option at 0");
      }
    }
    submission.number = last_rank;
    if (request == nullptr) return inner.run_join(submission);
    const auto id = inner.join(submission);
    if (!id) return id.status();
    *request = *id;
    return Status::ok();
  });
}

// ---- Collectives ------------------------------------------------------------------------------

kolo_status kolo_allreduce(kolo_context* context, const void* input, void* output, size_t count,
                           kolo_dtype dtype, kolo_op op, const kolo_options* options,
                           kolo_request* request) {
  return with_context(context, "kolo_allreduce", [&](Context& inner) {
    Submission submission = submission_of(OpKind::kAllreduce, input, output, count, dtype);
    submission.op = static_cast<ReduceOp>(op);
    return submit(inner, std::move(submission), options, request);
  });
}

kolo_status kolo_reduce_scatter(kolo_context* context, const void* input, void* output,
                                size_t count, kolo_dtype dtype, kolo_op op,
                                const kolo_options* options, kolo_request* request) {
  return with_context(context, "kolo_reduce_scatter", [&](Context& inner) {
    Submission submission = submission_of(OpKind::kReduceScatter, input, output, count, dtype);
    submission.op = static_cast<ReduceOp>(op);
    return submit(inner, std::move(submission), options, request);
  });
}

kolo_status kolo_allgather(kolo_context* context, const void* input, void* output, size_t count,
                           kolo_dtype dtype, const kolo_options* options, kolo_request* request) {
  return with_context(context, "kolo_allgather", [&](Context& inner) {
    return submit(inner, submission_of(OpKind::kAllgather, input, output, count, dtype), options,
                  request);
  });
}

kolo_status kolo_alltoall(kolo_context* context, const void* input, void* output, size_t count,
                          kolo_dtype dtype, const kolo_options* options, kolo_request* request) {
  return with_context(context, "kolo_alltoall", [&](Context& inner) {
    return submit(inner, submission_of(OpKind::kAlltoall, input, output, count, dtype), options,
                  request);
  });
}

kolo_status kolo_broadcast(kolo_context* context, const void* input, void* output, size_t count,
                           kolo_dtype dtype, int32_t root, const kolo_options* options,
                           kolo_request* request) {
  return with_context(context, "kolo_broadcast", [&](Context& inner) {
    // Off the root the input is nobody's business: there the operation works in place.
    Submission submission = submission_of(OpKind::kBroadcast, inner.rank() == root ? input : output,
                                          output, count, dtype);
    submission.root = root;
    return submit(inner, std::move(submission), options, request);
  });
}

kolo_status kolo_barrier(kolo_context* context, const kolo_options* options,
                         kolo_request* request) {
  return with_context(context, "kolo_barrier", [&](Context& inner) {
    Submission submission;
    submission.kind = OpKind::kBarrier;
    return submit(inner, std::move(submission), options, request);
  });
}

}  // extern "C"
