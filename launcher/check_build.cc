#include "launcher/check_build.h"

#include <algorithm>
#include <boost/version.hpp>
#include <filesystem>
#include <string_view>

#include "base/options.h"
#include "base/types.h"
#include "transport/rendezvous/agent_codec.h"
#include "transport/rendezvous/rendezvous.h"

namespace kolo::internal {
namespace {

std::string choices_of(std::string_view key) {
  for (const OptionRow& row : Config::table()) {
    if (row.key != key) continue;
    std::string names(row.choices);
    for (std::size_t at = 0; (at = names.find('|', at)) != std::string::npos;) {
      names.replace(at, 1, ", ");
    }
    return names;
  }
  return "";
}

// The module lies where libkolo.so does: beside this program, or in the lib folder beside its own.
std::string mpi_note() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  constexpr const char* kModule = "libkolo-mpi-mpich.so";
  for (const char* folder : {".", "../lib", "../lib/x86_64-linux-gnu"}) {
    if (std::filesystem::exists(self.parent_path() / folder / kModule, error)) return "";
  }
  return std::string(" (no ") + kModule + " is found, so not those with mpi)";
}

}  // namespace

std::string check_build_text() {
  std::string types;
  std::string ops;
  for (int i = 0; i < kDataTypeCount; ++i) {
    types += (i == 0 ? "" : ", ") + std::string(data_type_name(static_cast<DataType>(i)));
  }
  for (int i = 0; i < kReduceOpCount; ++i) {
    ops += (i == 0 ? "" : ", ") + std::string(reduce_op_name(static_cast<ReduceOp>(i)));
  }
  ops += ", " + std::string(reduce_op_name(ReduceOp::kAdasum));
  const auto row = [](std::string name, const std::string& value) {
    name.resize(14, ' ');
    return "  " + name + value + "\n";
  };
  return "kolo " KOLO_VERSION "\n" + row("transports", choices_of("transport") + mpi_note()) +
         row("algorithms", choices_of("algorithm")) + row("data types", types) +
         row("operators", ops) + row("launchers", "fork, ssh, any other by --launcher-exec") +
         row("protocols", "ranks " + std::to_string(kProtocolVersion) + ", agents " +
                              std::to_string(kAgentProtocolVersion)) +
         row("protobuf", protobuf_version()) +
         row("boost", std::to_string(BOOST_VERSION / 100000) + "." +
                          std::to_string(BOOST_VERSION / 100 % 1000) + "." +
                          std::to_string(BOOST_VERSION % 100)) +
         row("compiler", "g++ " __VERSION__);
}

}  // namespace kolo::internal
