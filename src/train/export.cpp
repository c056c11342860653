// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/export.hpp"

#include <optional>

#include "trireme/checkpoint/huggingface.hpp"
#include "trireme/data/tokenizer.hpp"

namespace trireme::train {
namespace {

/// Gathers block after block as their parameters are asked for, in the model's order.
class Gatherer {
 public:
  explicit Gatherer(Job& job) : job_(job) {}

  std::span<const float> operator()(model::ParamRef ref) {
    if (now_ != ref.block) {
      whole_.reset();
      whole_ = job_.gather_masters(ref.block);
      now_ = ref.block;
    }
    const shard::Range range = job_.layout()[ref.block].range(ref.index);
    return {whole_.const_data_ptr<float>() + range.begin, static_cast<std::size_t>(range.size())};
  }

 private:
  Job& job_;
  std::optional<ParamBlock> now_;
  at::Tensor whole_;
};

}  // namespace

checkpoint::HfWriteOptions export_options(const config::RunConfig& config) {
  checkpoint::HfWriteOptions options{.dtype = config.precision.compute, .max_position_embeddings = config.data.seq_len};
  if (config.data.document_end)
    options.eos_token_ids = {*config.data.document_end};
  else if (!config.data.tokenizer.empty())
    options.eos_token_ids = {data::make_tokenizer(config.data.tokenizer)->document_end()};
  return options;
}

void export_huggingface(Job& job, const std::string& directory, bool overwrite) {
  if (job.control().rank() == 0) {
    checkpoint::HfWriteOptions options = export_options(job.config());
    options.overwrite = overwrite;
    checkpoint::write_huggingface(directory, job.model(), options, Gatherer(job));
  } else if (job.at().replicate == 0) {  // the ranks of rank 0's shard group take part in its gathers
    for (int b = 0; b < job.model().param_blocks(); ++b) (void)job.gather_masters(ParamBlock{b});
  }
  job.control().barrier();
}

}  // namespace trireme::train
