/* Fuzz target: a safetensors file; or, where the input begins with '{', the index of a model in
 * one shard and the shard behind a NUL. Every tensor of what is accepted can be read whole.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "fuzz.h"
#include "model/safetensors.h"

static void read_all(const struct ebb_tensor_info *info)
{
    int64_t elements = 1;
    for (int i = 0; i < info->dims; i++) elements *= info->shape[i];
    FUZZ_CHECK(elements * ebb_dtype_bytes(info->dtype) == info->bytes);
    if (info->bytes > 0) (void)ebb_hash_bytes(info->data, (size_t)info->bytes);
    bool real = info->dtype == EBB_F32 || info->dtype == EBB_BF16 || info->dtype == EBB_F16;
    if (!real || elements == 0) return;
    float *copy = (float *)malloc((size_t)elements * sizeof *copy);
    FUZZ_CHECK(copy != NULL);
    ebb_tensor_copy(info, 1, elements, copy, EBB_F32, elements);
    free(copy);
}

static void check_set(struct ebb_ctx *ctx, const struct ebb_safetensors *set)
{
    const struct ebb_tensor_info *info;
    for (int64_t i = 0; i < ebb_safetensors_count(set); i++) {
        info = ebb_safetensors_at(set, i);
        FUZZ_CHECK(ebb_safetensors_find(set, info->name) == info);
        read_all(info);
    }
    (void)fuzz_succeeded(ctx, ebb_safetensors_want(ctx, set, "a", 2, 3, &info));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ebb_ctx *ctx = fuzz_open();
    struct ebb_safetensors *set;
    if (bytes > 0 && data[0] == '{') {
        struct fuzz_text index = fuzz_take(&data, &bytes);
        fuzz_file("model.safetensors.index.json", index.data, index.bytes);
        fuzz_file("model-00001-of-00001.safetensors", data, bytes);
    } else {
        fuzz_file("model.safetensors", data, bytes);
    }
    if (fuzz_succeeded(ctx, ebb_safetensors_open_dir(ctx, "mem", &set))) {
        check_set(ctx, set);
        ebb_safetensors_close(ctx, set);
    }
    fuzz_close(ctx);
    return 0;
}
