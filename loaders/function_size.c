/* function_size.c - how many nodes a call of a function becomes, before any of them is
 * made: thirty functions that each call the one before twice are 2^30 nodes. Each body is
 * counted once; a stack of our own takes the place of recursion. */
#include "../runtime/poll.h"
#include "onnx_load.h"

enum { COUNTING = -1 };

struct frame {
    struct attn_function *function; /* whose body it is; NULL: a subgraph in one */
    const struct attn_opset *opsets;
    int32_t n_opsets;
    PB(NodeProto) *const *nodes;
    size_t n, next;
    int64_t parent, sum; /* parent: place in the stack, -1 none */
};

struct stack {
    struct attn_load *load;
    struct frame *frames;
    int64_t n, capacity;
};

static attn_status push(struct stack *stack, struct frame frame)
{
    if (stack->n == stack->capacity)
        TRY(attn_pool_grow(stack->load->pool, (void **)&stack->frames, &stack->capacity,
                           stack->n, (int64_t)sizeof frame));
    stack->frames[stack->n++] = frame;
    return ATTNRUN_OK;
}

static attn_status push_function(struct stack *stack, struct attn_function *function,
                                 int64_t parent)
{
    function->size = COUNTING;
    return push(stack, (struct frame){ .function = function,
                                       .opsets = function->opsets,
                                       .n_opsets = function->n_opsets,
                                       .nodes = function->pb->node,
                                       .n = function->pb->n_node,
                                       .parent = parent });
}

static attn_status push_graph(struct stack *stack, int64_t parent,
                              const PB(GraphProto) * pb)
{
    struct frame frame = stack->frames[parent];
    frame.function = NULL;
    frame.nodes = pb->node;
    frame.n = pb->n_node;
    frame.next = 0;
    frame.sum = 0;
    frame.parent = parent;
    return push(stack, frame);
}

int64_t attn_load_max_expanded(const struct attn_load *load)
{
    return load->model->limits.expanded_nodes +
           ATTN_LOAD_EXPANDED_EACH * load->reader.scan->n_nodes;
}

static void add(const struct stack *stack, int64_t *sum, int64_t more)
{
    int64_t max = attn_load_max_expanded(stack->load);
    *sum = *sum + more > max ? max + 1 : *sum + more;
}

/* Counts a node of the frame at `at`; what it contains is counted from the stack. */
static attn_status count_node(struct stack *stack, int64_t at, const PB(NodeProto) * pb)
{
    const struct frame *frame = &stack->frames[at];
    const struct attn_function *called;
    TRY(attn_load_body(stack->load, frame->opsets, frame->n_opsets, pb, &called));
    add(stack, &stack->frames[at].sum, 1);
    for (size_t k = 0; k < pb->n_attribute; k++) {
        const PB(AttributeProto) *attr = pb->attribute[k];
        if (attr->g != NULL)
            TRY(push_graph(stack, at, attr->g));
        for (size_t g = 0; g < attr->n_graphs; g++)
            TRY(push_graph(stack, at, attr->graphs[g]));
    }
    if (called == NULL || called->size == COUNTING)
        return ATTNRUN_OK;
    if (called->size == 0)
        return push_function(
            stack, &stack->load->functions[called - stack->load->functions], at);
    add(stack, &stack->frames[at].sum, called->size);
    return ATTNRUN_OK;
}

static void pop(struct stack *stack)
{
    struct frame *frame = &stack->frames[--stack->n];
    if (frame->function != NULL) {
        add(stack, &frame->sum, 1); /* the call */
        frame->function->size = frame->sum;
    }
    if (frame->parent >= 0)
        add(stack, &stack->frames[frame->parent].sum, frame->sum);
}

attn_status attn_function_count(struct attn_load *load,
                                const struct attn_function *function)
{
    struct stack stack = { .load = load };
    if (function->size != 0)
        return ATTNRUN_OK;
    TRY(push_function(&stack, &load->functions[function - load->functions], -1));
    while (stack.n > 0) {
        int64_t top = stack.n - 1;
        struct frame *frame = &stack.frames[top];
        TRY(attn_poll_work(256));
        if (frame->next < frame->n)
            TRY(count_node(&stack, top, frame->nodes[frame->next++]));
        else
            pop(&stack);
    }
    return ATTNRUN_OK;
}
