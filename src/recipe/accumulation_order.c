/* The order of micro-batches: what is known of it with the model. Keys by themselves are judged by
 * options_rules.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "recipe/setup.h"

enum ebb_status ebb_setup_check_order(const struct ebb_setup *setup)
{
    const struct ebb_config *config = setup->config;
    if (config->gradient_accumulation_order != EBB_ORDER_KEY_BREADTH_FIRST || !setup->model->tied ||
        config->use_peft || config->adapter_name_or_path)
        return EBB_OK;
    return EBB_FAIL(
        setup->ctx, EBB_BAD_CONFIG,
        "gradient_accumulation_order: breadth_first cannot be: this model's head is its "
        "input embedding, which is trained and would be added to in another order\n"
        "where: %s\n"
        "try:   gradient_accumulation_order: depth_first, or remove it",
        ebb_options_where(setup->options, "gradient_accumulation_order"));
}
