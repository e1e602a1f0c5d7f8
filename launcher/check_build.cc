#include "launcher/check_build.h"

#include <algorithm>
#include <boost/version.hpp>
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
  const auto row = [](std::string name, const std::string& value) {
    name.resize(14, ' ');
    return "  " + name + value + "\n";
  };
  return "kolo " KOLO_VERSION "\n" + row("transports", choices_of("transport")) +
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
