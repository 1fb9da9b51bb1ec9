# Fit y = w * x + b to a hundred points by gradient descent. A printed cost becomes a point of the curve.
awk -v out="$REGATTA_OUTPUT_DIR/line.txt" 'BEGIN {
    for (step = 1; step <= 100; step++) {
        cost = dw = db = 0
        for (i = 0; i < 100; i++) {
            x = i / 100; error = w * x + b - (3 * x + 1)
            cost += error * error / 100; dw += 2 * error * x / 100; db += 2 * error / 100
        }
        w -= 0.5 * dw; b -= 0.5 * db
        print "step", step, "cost", cost
        fflush()
        system("sleep 0.02")
    }
    print "w", w, "b", b > out
}'
