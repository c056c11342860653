// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <map>
#include <string>

#include "trireme/base/error.hpp"
#include "trireme/config/model_texts.hpp"
#include "trireme/huggingface/huggingface.hpp"
#include "trireme/model/architecture.hpp"

namespace trireme::huggingface {

config::Model merge_model_config(const config::Model& from_file, const config::Model& from_hf) {
  using Texts = std::map<std::string, std::string>;
  const auto texts = [](const config::Model& model) {
    const auto list = config::model_texts(model);
    return Texts(list.begin(), list.end());
  };
  const auto value = [](const Texts& of, const std::string& key) {
    const auto found = of.find(key);
    return found == of.end() ? std::string("none") : found->second;
  };
  config::Model with_layers = from_file;
  if (with_layers.layers == 0) with_layers.layers = from_hf.layers;
  const config::Model shortest = model::in_shortest_form(with_layers);  // as files of Hugging Face are read
  with_layers = from_file;
  with_layers.no_rope_interval = shortest.no_rope_interval;
  with_layers.sliding_window = shortest.sliding_window;
  with_layers.layer_types = shortest.layer_types;
  const Texts file = texts(with_layers), hf = texts(model::in_shortest_form(from_hf)), not_given = texts({});
  Mistakes mistakes;
  for (const auto& [key, given] : file)
    if (given != value(not_given, key) && given != value(hf, key))
      mistakes.add(fmt::format("{} = {}, but the weights of model.from have {}; leave the key out or give the same",
                               key, given, value(hf, key)));
  mistakes.raise("the run file and the weights that it starts from describe different models");
  config::Model model = from_hf;
  model.init = from_file.init;
  model.init_std = from_file.init_std;
  model.from = from_file.from;
  return model;
}

}  // namespace trireme::huggingface
