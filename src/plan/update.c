/* Writes the update program (plan/update_int.h).
 *
 * Of a parameter whose unit is away, blocks of rows come in, are worked on and go out again, some
 * ahead of the one that is being worked on, so that both directions of the link are busy beside
 * the work.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plan/update_int.h"

#include "op/optimizer.h"
#include "op/step.h"

/* Blocks that come in ahead, at most. Those of the norm are gradients alone, and small vectors that
 * are at home come between. */
enum { AHEAD_OF_NORM = 4, AHEAD_OF_SWEEP = 2 };

/* What the program is written from. */
struct update {
    struct ebb_build *build;
    const struct ebb_net *net;
    const struct ebb_optimizer_keys *keys;
};

static struct ebb_view block_view(int32_t tensor)
{
    int64_t bytes = (int64_t)sizeof(struct ebb_step);
    return ebb_tensor_view(tensor, EBB_U8, 0, 1, 0, bytes, bytes);
}

static struct ebb_view sums_view(int32_t tensor)
{
    int64_t bytes = (int64_t)sizeof(struct ebb_sums);
    return ebb_tensor_view(tensor, EBB_U8, 0, 1, 0, bytes, bytes);
}

/* Rows of a parameter. */
struct rows {
    int32_t param;
    int64_t first, count;
};

static bool is_away(const struct update *u, const struct ebb_param *param)
{
    return ebb_policies_state_away(u->build->policies, param);
}

/* The block of a parameter that begins at `first`. */
static struct rows rows_from(const struct ebb_net *net, int32_t param, int64_t first, bool blocks)
{
    const struct ebb_view *w = &net->params[param].w;
    int64_t count = w->rows - first, most = EBB_SWEEP_ELEMENTS / w->cols;
    if (most < 1) most = 1;
    if (blocks && count > most) count = most;
    return (struct rows){param, first, count};
}

/* Which parameters a walk goes through. */
enum walk { ALL, AT_HOME, AWAY };

static bool is_wanted(const struct update *u, int32_t param, enum walk walk)
{
    return walk == ALL || is_away(u, &u->net->params[param]) == (walk == AWAY);
}

/* The rows behind `at`, whose param is -1 in the beginning. Whoever is at home is swept whole.
 * False: there are none. */
static bool next_rows(const struct update *u, enum walk walk, struct rows *at)
{
    if (at->param >= 0 && at->first + at->count < u->net->params[at->param].w.rows) {
        *at = rows_from(u->net, at->param, at->first + at->count, true);
        return true;
    }
    for (int32_t i = at->param + 1; i < u->net->param_count; i++) {
        if (!is_wanted(u, i, walk)) continue;
        *at = rows_from(u->net, i, 0, walk != AT_HOME && ebb_param_may_leave(&u->net->params[i]));
        return true;
    }
    return false;
}

/* ---- state ---- */

enum state { GRAD, LO, M, V, STATES };

static int32_t home_of(const struct ebb_param *param, enum state which)
{
    return which == GRAD ? param->grad : which == LO ? param->lo : which == M ? param->m : param->v;
}

static struct ebb_view state_rows(const struct ebb_param *param, int32_t tensor,
                                  enum ebb_dtype dtype, int64_t first, int64_t count)
{
    if (tensor < 0) return ebb_view_none();
    return ebb_tensor_view(tensor, dtype, first, count, 0, param->w.cols, param->w.cols);
}

/* Where the sweep finds a block's state: at home, or in transient tensors. */
struct block {
    struct rows rows;
    int32_t in[STATES]; /* -1: at home */
};

static enum ebb_dtype type_of(enum state which)
{
    return which == LO ? EBB_U16 : EBB_F32;
}

static struct ebb_view home_view(const struct ebb_net *net, const struct rows *rows,
                                 enum state which)
{
    const struct ebb_param *param = &net->params[rows->param];
    return state_rows(param, home_of(param, which), type_of(which), rows->first, rows->count);
}

static struct ebb_view view_of(const struct ebb_net *net, const struct block *block,
                               enum state which)
{
    const struct ebb_param *param = &net->params[block->rows.param];
    struct ebb_view view;
    if (block->in[which] < 0) return home_view(net, &block->rows, which);
    view = state_rows(param, block->in[which], type_of(which), 0, block->rows.count);
    view.row0 = block->rows.first;
    return view;
}

static enum ebb_status move(const struct update *u, const struct block *block, enum state which,
                            enum ebb_entry_kind kind)
{
    return ebb_build_copy(u->build, kind, view_of(u->net, block, which),
                          home_view(u->net, &block->rows, which));
}

/* Starts the moves of a block's first `states` tensors. */
static enum ebb_status bring(const struct update *u, const struct rows *rows, int states,
                             struct block *block)
{
    const struct ebb_param *param = &u->net->params[rows->param];
    block->rows = *rows;
    memset(block->in, 0xff, sizeof block->in);
    if (!is_away(u, param)) return EBB_OK;
    for (int i = 0; i < states; i++) {
        enum state which = (enum state)i;
        if (home_of(param, which) < 0) continue;
        int64_t bytes = rows->count * param->w.cols * ebb_dtype_bytes(type_of(which));
        EBB_TRY(ebb_program_tensor(u->build->program, EBB_SPACE_DEVICE, bytes, &block->in[which],
                                   "%.40s block", param->name));
        EBB_TRY(move(u, block, which, EBB_ENTRY_IN));
    }
    return EBB_OK;
}

/* ---- work ---- */

static enum ebb_status emit_norm(const struct update *u, const struct block *block)
{
    const struct ebb_op_target target = ebb_numerics_target(u->build->numerics);
    struct ebb_norm_squared args = {.grad = view_of(u->net, block, GRAD),
                                    .sums = sums_view(u->net->inputs.sums)};
    args.scratch = ebb_build_scratch(u->build, ebb_norm_squared_scratch(&target));
    return ebb_build_op(u->build, EBB_OP_norm_squared, &args);
}

static struct ebb_view weight_rows(const struct update *u, const struct rows *rows)
{
    struct ebb_view view = ebb_policies_param(u->build->policies, &u->net->params[rows->param]);
    view.offset += rows->first * view.stride * ebb_dtype_bytes((enum ebb_dtype)view.dtype);
    view.rows = rows->count;
    view.row0 += rows->first;
    return view;
}

static enum ebb_status emit_sgd(const struct update *u, const struct block *block,
                                struct ebb_view master, double decay)
{
    struct ebb_sgd args = {.w = weight_rows(u, &block->rows),
                           .lo = view_of(u->net, block, LO),
                           .master = master,
                           .grad = view_of(u->net, block, GRAD),
                           .m = view_of(u->net, block, M),
                           .step = block_view(u->net->inputs.step),
                           .sums = sums_view(u->net->inputs.sums),
                           .instance = (uint32_t)block->rows.param,
                           .momentum = u->keys->momentum,
                           .weight_decay = decay};
    return ebb_build_op(u->build, EBB_OP_sgd, &args);
}

static enum ebb_status emit_adamw(const struct update *u, const struct block *block,
                                  struct ebb_view master, double decay)
{
    struct ebb_adamw args = {.w = weight_rows(u, &block->rows),
                             .lo = view_of(u->net, block, LO),
                             .master = master,
                             .grad = view_of(u->net, block, GRAD),
                             .m = view_of(u->net, block, M),
                             .v = view_of(u->net, block, V),
                             .step = block_view(u->net->inputs.step),
                             .sums = sums_view(u->net->inputs.sums),
                             .instance = (uint32_t)block->rows.param,
                             .beta1 = u->keys->beta1,
                             .beta2 = u->keys->beta2,
                             .eps = u->keys->eps,
                             .weight_decay = decay};
    return ebb_build_op(u->build, EBB_OP_adamw, &args);
}

/* Gradients become zero, which is not sent home: the next step's first micro-batch does not look.
 */
static enum ebb_status emit_sweep(const struct update *u, const struct block *block)
{
    const struct ebb_param *param = &u->net->params[block->rows.param];
    double decay = param->decay ? u->keys->weight_decay : 0;
    struct ebb_view master =
        state_rows(param, param->master, EBB_F32, block->rows.first, block->rows.count);
    EBB_TRY(u->keys->sgd ? emit_sgd(u, block, master, decay) : emit_adamw(u, block, master, decay));
    for (int i = LO; i < STATES; i++)
        if (block->in[i] >= 0) EBB_TRY(move(u, block, (enum state)i, EBB_ENTRY_OUT));
    return EBB_OK;
}

/* Does `work` with rows of parameters, in order; the first `states` of what belongs to them come in
 * before, where they are away. */
static enum ebb_status each(const struct update *u, enum walk walk, int states, int ahead,
                            enum ebb_status (*work)(const struct update *u,
                                                    const struct block *block))
{
    struct block ring[AHEAD_OF_NORM + 1];
    struct rows at = {.param = -1};
    int64_t brought = 0, done = 0;
    bool more = true;
    if (u->build->weights_ahead == 0) ahead = 0;
    while (more || done < brought) {
        while (more && brought - done <= ahead) {
            more = next_rows(u, walk, &at);
            if (more) EBB_TRY(bring(u, &at, states, &ring[brought++ % (ahead + 1)]));
        }
        if (done < brought) EBB_TRY(work(u, &ring[done++ % (ahead + 1)]));
    }
    return EBB_OK;
}

/* The sum is over all parameters in their order, wherever their gradients live. */
enum ebb_status ebb_update_emit(struct ebb_build *build, const struct ebb_plan_request *request)
{
    const struct update u = {build, request->net, &request->optimizer};
    struct ebb_clip clip = {.step = block_view(u.net->inputs.step),
                            .sums = sums_view(u.net->inputs.sums)};
    EBB_TRY(each(&u, ALL, GRAD + 1, AHEAD_OF_NORM, emit_norm));
    EBB_TRY(ebb_build_op(build, EBB_OP_clip, &clip));
    EBB_TRY(each(&u, AT_HOME, 0, 0, emit_sweep));
    return each(&u, AWAY, STATES, AHEAD_OF_SWEEP, emit_sweep);
}
