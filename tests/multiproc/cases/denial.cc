#include "tests/multiproc/cases/denial.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/multiproc/cases/job.h"

namespace kolo::cases {
namespace {

enum class When { kAlways, kAbove, kHasBits, kEquals };

struct Condition {
  When when = When::kAlways;
  unsigned argument = 0;
  std::uint32_t value = 0;
};

struct Kind {
  std::string_view name;
  unsigned call;
  unsigned error;
  std::vector<Condition> conditions;  // all must hold
};

std::vector<Kind> kinds() {
  constexpr std::uint32_t kHeaderBytes = 12288;
  constexpr std::uint32_t kLargeBytes = 4 << 20;
  const Condition shared{When::kHasBits, 3, MAP_SHARED};
  return {
      {"memfd_create", SYS_memfd_create, EPERM, {}},
      {"ftruncate", SYS_ftruncate, ENOSPC, {}},
      {"fallocate", SYS_fallocate, ENOSPC, {}},
      {"fallocate-carve", SYS_fallocate, ENOSPC, {{When::kAbove, 3, kHeaderBytes}}},
      {"fallocate-alloc", SYS_fallocate, ENOSPC, {{When::kAbove, 3, kLargeBytes}}},
      {"mmap", SYS_mmap, ENOMEM, {shared}},
      {"mmap-peer", SYS_mmap, ENOMEM, {shared, {When::kEquals, 2, PROT_READ}}},
  };
}

sock_filter statement(int code, std::size_t value) {
  return {static_cast<std::uint16_t>(code), 0, 0, static_cast<std::uint32_t>(value)};
}

// Goes on if the loaded word fits; else skips the next statement, which then allows.
void demand(std::vector<sock_filter>& filter, int comparison, std::uint32_t value) {
  filter.push_back({static_cast<std::uint16_t>(BPF_JMP | comparison | BPF_K), 1, 0, value});
  filter.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
}

std::vector<sock_filter> filter_of(const Kind& kind) {
  std::vector<sock_filter> filter;
  filter.push_back(statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  demand(filter, BPF_JEQ, kind.call);
  for (const Condition& condition : kind.conditions) {
    // The lower half: enough for what is compared here, on little-endian machines.
    const std::size_t place = offsetof(seccomp_data, args) + 8 * std::size_t{condition.argument};
    filter.push_back(statement(BPF_LD | BPF_W | BPF_ABS, place));
    demand(filter,
           condition.when == When::kAbove     ? BPF_JGT
           : condition.when == When::kHasBits ? BPF_JSET
                                              : BPF_JEQ,
           condition.value);
  }
  filter.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | kind.error));
  return filter;
}

}  // namespace

void deny(std::string_view what) {
  for (const Kind& kind : kinds()) {
    if (kind.name != what) continue;
    std::vector<sock_filter> filter = filter_of(kind);
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
      fail("no seccomp filter here, errno " + std::to_string(errno));
    }
    return;
  }
  fail("cannot deny '" + std::string(what) + "'");
}

}  // namespace kolo::cases
