// Functions with calls of themselves that are inlined: by recursion, and where the compiler splits
// a function into a short begin and a rest.
int work(int what);

struct Tree {
    Tree *left, *right;
    int value;
};

int sum(const Tree *tree) {
    if (!tree) return 0;
    return tree->value + sum(tree->left) + sum(tree->right);
}

struct Writer {
    int rank;
    void checkpoint(int fields) {
        if (rank == 0) {
            for (int i = 0; i < fields; i++) work(i); // line checkpoint
            work(fields);
        }
    }
    int run(int steps) {
        int sum = 0;
        for (int i = 0; i < steps; i++) {
            sum += work(i);
            checkpoint(i); // call checkpoint
        }
        return sum;
    }
};

int run(Writer *writer, int steps) { return writer->run(steps); }
